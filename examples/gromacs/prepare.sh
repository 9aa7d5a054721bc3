# The inputs of docs/how-to/gromacs.md, from what Debian's gromacs brings along: 216 molecules of water.
#   sh prepare.sh        half.tpr: 2000 steps; whole.tpr: 4000; longer.tpr: 5000; hot.tpr: 4000 at 350 K
set -e
here=$(dirname "$0")
make() {  # make NAME STEPS KELVIN
    sed "s/STEPS/$2/; s/KELVIN/$3/" "$here/water.mdp" > "$1.mdp"
    gmx grompp -f "$1.mdp" -c /usr/share/gromacs/top/spc216.gro -p "$here/water.top" -o "$1.tpr" -po "$1.out.mdp"
}
make half 2000 300
make whole 4000 300
make longer 5000 300
make hot 4000 350
