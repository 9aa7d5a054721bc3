# what logrotate and daemons do: rename and reopen, copy and truncate, a log that is held open all the while
set -e
exec 5>> app.log
for round in 1 2 3; do
  for n in $(seq 40); do echo "round $round line $n" >&5; done
  [ $round = 2 ] && mark
  for n in 3 2 1; do [ -e app.log.$n ] && mv app.log.$n app.log.$((n + 1)); done
  mv app.log app.log.1; echo "into the renamed one" >&5
  exec 5>&-; exec 5>> app.log
done
mark
(while sleep 0.02; do echo tick >&5; done) & ticker=$!
sleep 0.2; kill $ticker; wait $ticker 2>/dev/null || true
sed -i /tick/d app.log.1; exec 5>&-; grep -v tick app.log > app.tmp || true; mv app.tmp app.log
exec 6>> copied.log; seq 1 2000 >&6; cp copied.log copied.log.1; : > copied.log; seq 1 20 >&6
mark
gzip -n copied.log.1; exec 7> positional.log; seq 1 500 >&7; : > positional.log; echo after >&7
rm copied.log; echo "to a file without a name" >&6; wc -c < /proc/self/fd/6; exec 6>&-
mark
stat -c '%s' positional.log app.log*; exec 7>&-
