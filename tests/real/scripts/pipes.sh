# needs tee paste join
seq 100 | tee a b | paste - - > c && sort -o d a && join a b > e 2> said; cksum a b c d
tee -a a < b | wc -l; wc -l a; ls
