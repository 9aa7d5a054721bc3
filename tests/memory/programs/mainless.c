/* The main thread ends; another one goes on until there is a file "go". */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_t first;

static void *alone(void *unused)
{
    pthread_join(first, NULL);
    write(1, "alone\n", 6);
    while (access("go", F_OK) < 0)
        usleep(10000);
    write(1, "done\n", 5);
    exit(3);
    return unused;
}

int main(void)
{
    pthread_t thread;
    first = pthread_self();
    pthread_create(&thread, NULL, alone, NULL);
    pthread_exit(NULL);
}
