/* The first thread ends; another one writes until stdin ends. */
#include "say.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

static pthread_t leader;

static void *alone(void *unused)
{
    pthread_join(leader, NULL);
    int grows = open("grows", O_WRONLY | O_CREAT | O_APPEND, 0644), old = open("c0", O_RDWR);
    write(1, "alone\n", 6);
    for (struct pollfd in = {0, POLLIN, 0}; poll(&in, 1, 1) == 0;) {
        write(grows, "0123456789", 10);
        pwrite(old, "x", 1, 5);
    }
    _exit(0);
    return unused;
}

int main(void)
{
    pthread_t thread;
    leader = pthread_self();
    pthread_create(&thread, NULL, alone, NULL);
    pthread_exit(NULL);
}
