# needs perl
seq 500 > f && perl -pi -e 's/1/one/g' f
perl -e 'open F, "+<", "f"; seek F, 10, 0; print F "XYZ"; close F' && cksum f
perl -e 'open F, ">>", "f"; print F "end\n"; close F; truncate "f", 300; unlink "g"; rename "f", "g"' && cksum g
