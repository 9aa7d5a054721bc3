/* runtime.h - what the shim asks of the embedded Python; metamori/runtime/inside/embed.py answers. */
#ifndef MM_RUNTIME_H
#define MM_RUNTIME_H
/* CDEF-BEGIN */
#define MM_CALL_BEGIN 1        /* by hand in LD_PRELOAD: make the store and the run area */
#define MM_CALL_CHECKPOINT 2   /* data: message or NULL; the new index */
#define MM_CALL_RESTORE 3      /* argument: index; data: struct mm_actions to fill; leaves the run frozen on success */
#define MM_CALL_RESTORED 4     /* the actions are done: thaw */
#define MM_CALL_LAST_OUT 5     /* the last process ends: commit; argument: the run's number */
#define MM_CALL_PRUNE 7        /* the disk is full: 1 when a prune has freed some */
#define MM_CALL_FILES_BACK 20    /* argument: index: files and names only, descriptors stay as they are */
/* CDEF-END */
#endif
