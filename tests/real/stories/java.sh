# needs: java javac
set -e
cat > Program.java <<'EOF'
import java.io.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.file.*;
public class Program {
    static void mark() throws Exception { new ProcessBuilder("mark").inheritIO().start().waitFor(); }
    public static void main(String[] words) throws Exception {
        Path log = Path.of("log"), data = Path.of("data");
        try (BufferedWriter out = Files.newBufferedWriter(log)) {
            for (int i = 0; i < 2000; i++)
                out.write(i + "\n");
        }
        RandomAccessFile file = new RandomAccessFile("data", "rw");
        file.write(new byte[50000]);
        mark();
        file.seek(1234);
        file.writeUTF("written over");
        FileChannel channel = FileChannel.open(log, StandardOpenOption.READ, StandardOpenOption.WRITE);
        channel.write(ByteBuffer.wrap("position".getBytes()), 300);
        System.out.println(channel.transferTo(0, 1000, file.getChannel()) + " " + file.length());
        Files.createDirectories(Path.of("a/b"));
        Files.copy(data, Path.of("a/b/copy"));
        Files.createLink(Path.of("a/hard"), log);
        mark();
        MappedByteBuffer map = channel.map(FileChannel.MapMode.READ_WRITE, 0, 4096);
        map.put(10, (byte) 'M');
        map.force();
        channel.truncate(5000);
        Files.move(Path.of("a/b/copy"), data, StandardCopyOption.ATOMIC_MOVE);
        file.seek(0);
        file.writeInt(7);
        Files.writeString(Path.of("a/b/new"), "new", StandardOpenOption.CREATE_NEW);
        mark();
        Files.delete(Path.of("a/hard"));
        System.out.println(Files.readString(log).length() + " " + file.length() + " " + Files.size(data));
    }
}
EOF
java -XX:-UsePerfData -Xshare:auto -Xmx64m Program.java
