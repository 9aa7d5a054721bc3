# needs git; .git/index holds inode numbers and times
set -e
git init -q -b main .
for n in 1 2 3 4 5 6; do
  for f in a b c d; do seq $n 40 | sed "s/$/ $f/" > $f$n; done
  git add . && git commit -q -m "commit $n"
done
git mv a1 moved && git rm -q b2 && git commit -q -m renamed
git checkout -q -b side HEAD~3 && echo side > side && git add side && git commit -q -m side
git checkout -q main && git merge -q -m merged side
git tag first HEAD~2 && git stash list && echo dirty >> a2 && git stash -q && git stash pop -q
git fsck --full --strict && git -c pack.threads=1 gc -q --prune=now && git fsck --full
git log --oneline --graph | cut -c1-60
git status --short
git clone -q . clone && git -C clone log --oneline | wc -l && rm -rf clone
