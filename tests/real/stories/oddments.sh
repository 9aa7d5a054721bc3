# needs: perl cpio zip unzip tclsh lua5.4 m4 bc
# volatile: archive
set -e
export TZ=UTC
seq 1 300 > numbers; truncate -s 1M sparse; printf end | dd of=sparse bs=1 seek=900000 conv=notrunc status=none
perl -MSDBM_File -MFcntl -e 'tie(my %h, "SDBM_File", "hashed", O_RDWR|O_CREAT, 0644) or die; $h{$_} = "v$_" for 1..500'
perl -MStorable=nstore -e '$Storable::canonical = 1; nstore({a => [1..50], b => "x" x 5000}, "stored")'
touch -d @1000000000 numbers sparse stored
mark
perl -MSDBM_File -MFcntl -e 'tie(my %h, "SDBM_File", "hashed", O_RDWR, 0644) or die; delete $h{$_} for 1..100; $h{200} = "new"; print scalar(keys %h), "\n"'
zip -qX packed.zip numbers sparse; zip -qX packed.zip stored; zip -qd packed.zip sparse
ls numbers sparse | cpio --quiet -o -H newc > archive; mkdir -p out; (cd out; cpio --quiet -id < ../archive; cksum numbers sparse)
mark
unzip -qo packed.zip -d out; unzip -Z1 packed.zip
tclsh <<'T'
set f [open told w+]; puts $f hello; seek $f 2; puts $f XY; seek $f 0; puts [read $f]; close $f
file rename -force told numbers; puts [file size numbers]
T
lua5.4 -e 'local f = io.open("sparse", "r+b"); f:setvbuf("full"); f:seek("set", 4000); f:write(("x"):rep(9000)); f:seek("set", 3998); print(f:read(8)); f:close()'
mark
printf 'define(N, 64)eval(N * 2)\n' | m4 > m; echo '2^64' | bc | tee -a m
perl -MStorable -e '$Storable::canonical = 1; my $s = Storable::retrieve("stored"); push @{$s->{a}}, 51; Storable::lock_store($s, "out/stored"); print scalar(@{Storable::lock_retrieve("out/stored")->{a}}), "\n"'
