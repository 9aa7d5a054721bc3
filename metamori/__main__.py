"""python -m metamori"""

from metamori.cli.main import main

raise SystemExit(main())
