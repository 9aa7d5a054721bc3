"""The words of a command line: the verbs, and their options with argparse or, where they are plain, without."""

VERBS = {
    "run": "run a command and track its files",
    "checkpoint": "take a checkpoint of the live run",
    "log": "the tree of checkpoints",
    "show": "what a checkpoint's records say",
    "diff": "which files, names and ranges differ between two checkpoints",
    "cat": "a file's content as it was at a checkpoint",
    "restore": "restore the files to a checkpoint",
    "undo": "take back the last changes of the files",
    "redo": "make undone changes again",
    "restart": "continue from a checkpoint: files, and the program's memory if it was saved",
    "report": "pictures of the history: timeline, heatmap, space, or one HTML page",
    "status": "what a live run is doing",
    "verify": "check every byte of the store",
    "prune": "free space: drop checkpoints that no rule keeps",
    "doctor": "what can and cannot be tracked here",
    "config": "compiler and linker flags for the C API",
}
