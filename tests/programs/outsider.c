/* Built static: shows the head of a file, or overwrites it, or does so again and again until `stop` is there. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **word)
{
    char text[64] = "";
    int fd = open(word[1], O_RDWR);
    if (count == 2) {
        read(fd, text, 16);
        return puts(text) < 0;
    }
    if (!strcmp(word[2], "inherited"))
        return write(3, "by the outsider\n", 16) != 16;
    for (int i = 0; access("stop", F_OK) < 0; i++) {
        pread(fd, text, 16, 0);
        printf("%s\n", text);
        fflush(stdout);
        usleep(20000);
    }
    return 0;
}
