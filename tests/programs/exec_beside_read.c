/* A thread executes this program again while the first one reads; the new one, with threads too, reads on. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *self, *reached;
static int fd;

static void *execute(void *unused)
{
    char number[16];
    for (int i = 0; i < 3000 && access(reached, F_OK) < 0; i++)
        usleep(10000);
    snprintf(number, sizeof number, "%d", fd);
    execl(self, self, reached, number, (char *)NULL);
    return unused;
}

static void *idle(void *unused)
{
    pause();
    return unused;
}

int main(int count, char **words)
{
    static char block[8192];
    pthread_t thread;
    self = words[0], reached = words[1];
    if (count > 2) {
        fd = atoi(words[2]);
        alarm(30);
        pthread_create(&thread, NULL, idle, NULL);
        printf("%zd\n", read(fd, block, 100));
        return 0;
    }
    fd = open("read", O_RDWR | O_CREAT, 0644);
    if (write(fd, block, sizeof block) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return 1;
    pthread_create(&thread, NULL, execute, NULL);
    return read(fd, block, 100) < 0;
}
