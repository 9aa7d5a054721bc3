# needs: git
# volatile: */.git/index */.git/worktrees/*/index */.git/gc.log
# check: git -C origin fsck --full --strict 2>&1
# check: if [ -d clone ]; then git -C clone fsck --full && git -C clone status --short && git -C clone log --oneline; fi
set -e
git init -q -b main origin
cd origin
for n in 1 2 3 4; do
  for f in a b c d; do seq $n 60 | sed "s/$/ $f/" > $f$n; done
  git add . && git commit -q -m "commit $n"
done
mark
git clone -q --no-hardlinks . ../clone
git clone -q --bare . ../bare.git
mark
git -c pack.threads=1 repack -q -a -d && git -c pack.threads=1 gc -q --prune=now && git fsck --full --strict
cd ../clone
git checkout -q -b topic
for n in 1 2 3; do echo "topic $n" >> a1; git commit -q -am "topic $n"; done
git push -q origin topic
git rebase -q HEAD~2
mark
git -c pack.threads=1 gc -q --prune=now
git worktree add -q ../tree main 2>/dev/null
git stash list; echo dirt >> b2; git stash -q; git stash pop -q; git checkout -q -- b2
mark
git reset -q --hard HEAD~1; git clean -fdq
git log --oneline --all | wc -l
