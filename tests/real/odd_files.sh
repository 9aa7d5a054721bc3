# calls that odd filesystems answer oddly; in a folder with a file f and a folder d
cat f; echo x > f; echo "write $?"; echo y >> f; echo "append $?"; dd if=f of=f bs=1 count=1 seek=1 conv=notrunc status=none
cp f c; echo "copy $?"; mv c c2; echo "move $?"; ln f h; echo "link $?"; ln -s f s; echo "symlink $?"; rm f; echo "rm $?"
mkdir e; echo "mkdir $?"; touch d; echo "touch $?"; chmod 600 c2; echo "chmod $?"; truncate -s 1 c2; echo "truncate $?"
: > c2; echo "empty $?"; rmdir d; echo "rmdir $?"; dd if=/dev/zero of=new bs=4k count=3 status=none; echo "dd $?"
mark; echo z | dd of=new bs=1 seek=5000 conv=notrunc status=none; echo "over $?"; setfattr -n user.x -v y new; echo "xattr $?"
mkfifo p; echo "fifo $?"; mv e e2; echo "folder $?"; exec 3<>new; echo 3 >&3; rm new; echo "unlinked $?"; echo 4 >&3; cat <&3
ls -1
