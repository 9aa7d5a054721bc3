# needs gzip bzip2 xz
seq 20000 > f && gzip -n -k f && bzip2 -k f && xz -k f && rm f && xz -d f.xz && gzip -d f.gz 2> said
cksum f* && wc -c < said
