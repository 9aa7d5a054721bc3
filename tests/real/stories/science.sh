# needs: h5repack h5diff h5dump h5copy nccopy ncgen ncdump
# volatile: late.h5 jam.h5
# check: for f in *.h5; do [ ! -s "$f" ] || h5dump -H "$f" > /dev/null || exit 1; done
# check: for f in *.nc; do [ ! -s "$f" ] || ncdump "$f" > /dev/null || exit 1; done
set -e
{ echo 'netcdf data { dimensions: time = UNLIMITED; x = 40; y = 25; variables: double v(time, x, y); v:units = "m";'
  echo 'int n(time); data: n = 1, 2, 3; v ='; seq 1 2999 | sed 's/$/,/'; echo '3000; }'; } > data.cdl
ncgen -k classic -o classic.nc data.cdl; ncgen -k netCDF-4 -o four.nc data.cdl; ncgen -k 64-bit-offset -o wide.nc data.cdl
mark
nccopy -d 5 -s -c x/10,y/5,time/1 four.nc packed.nc; nccopy -k netCDF-4 -w classic.nc back.nc; nccopy -k classic four.nc over.nc
h5repack -f GZIP=6 -l v:CHUNK=1x8x5 four.nc repacked.h5; h5diff four.nc repacked.h5 && echo same
mark
h5copy -i four.nc -o target.h5 -s /v -d /kept; h5copy -i four.nc -o target.h5 -s /n -d /more -p; h5repack -L target.h5 late.h5
h5repack -S PAGE -G 4096 late.h5 paged.h5; ncdump -v n packed.nc | tail -3; h5diff -v target.h5 late.h5 | tail -2
mark
nccopy -V n wide.nc wide2.nc; mv wide2.nc wide.nc; nccopy -u packed.nc packed2.nc; h5jam -i late.h5 -u data.cdl -o jam.h5 || true
h5repart 2>/dev/null || true; ncdump classic.nc | md5sum; ncdump back.nc | sed 1d | md5sum
