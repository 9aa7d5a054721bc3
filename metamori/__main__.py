"""python -m metamori, and the command metamori."""

import _signal  # type: ignore[import-not-found]

# Ctrl-C while all this is imported ends it as it ends any program; main() makes an exception of it again
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from metamori.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
