# needs: hg svn svnadmin
# volatile: hg/.hg/* copy/.hg/* svn/* work/.svn/* other/.svn/*
# check: [ ! -d hg ] || hg -R hg verify -q
# check: [ ! -d copy ] || { hg -R copy verify -q && hg -R copy log -T '{rev}:{node|short} {desc}\n' && hg -R copy status; }
# check: [ ! -d svn/db ] || svnadmin verify -q svn
# check: [ ! -d work/.svn ] || { svn cleanup work && svn status -v work && sqlite3 work/.svn/wc.db 'pragma integrity_check'; }
set -e
export HGRCPATH=/dev/null HGUSER=a TZ=UTC
hg init hg; cd hg
seq 1 400 > numbers; mkdir deep; for i in 1 2 3 4 5; do head -c $((i * 3000)) /dev/zero | tr '\0' $i > deep/$i; done
hg commit -qA -m first -d '0 0'; hg tag -d '1 0' one
cd ..; svnadmin create svn; svn checkout -q "file://$PWD/svn" work
cp -r hg/deep hg/numbers work; svn add -q work/deep work/numbers; svn commit -q -m first work
mark
cd hg; sed -i '10,90s/^/changed /' numbers; hg mv -q deep/1 deep/moved; hg rm -q deep/2; hg commit -q -m second -d '2 0'
hg update -q 0; echo other > side; hg add -q side; hg commit -q -m side -d '3 0'; hg merge -q -r 2; hg commit -q -m merge -d '4 0'
cd ..; hg clone -q hg copy; (cd copy; hg strip -q -r 3 --config extensions.strip= --no-backup; hg log -T '{rev} {desc}\n')
svn update -q work; sed -i 5,50d work/numbers; svn mv -q work/deep/3 work/moved; svn commit -q -m second work
mark
(cd copy; hg pull -qu; hg bisect -q --good 0 || true; hg revert -q -r 0 numbers; hg shelve -q --config extensions.shelve=; hg status)
svn checkout -q -r 1 "file://$PWD/svn" other; svn update -q other; diff -r -x .svn work other
svn update -q work; svn propset -q name value work; echo more >> work/numbers; svn revert -q work/numbers; svn commit -q -m third work
svnadmin pack -q svn; svnadmin dump -q svn | grep -ac '^Revision-number'
mark
hg -R copy log -T '{rev}:{node|short} {desc}\n'; svn log -q work | wc -l; rm -rf other; (cd copy; hg unshelve -q --config extensions.shelve=; hg diff | wc -l)
