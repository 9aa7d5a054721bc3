# needs cp install find cksum
set -e
cp -r /usr/include/linux/netfilter . && mv netfilter n && cp -a n m && install -m 600 n/*.h . && rm -r n
ls | wc -l && find . -type f | LC_ALL=C sort | xargs cksum | cksum
