# needs awk
seq 3000 | awk '{print > ("out" $1 % 7); print "log" >> "log"}' && cat out* | cksum && cksum log
