/* Processes and threads that write numbered records at the same time, for a checker that knows what a kernel may do.
 *
 * records PROCESSES THREADS STEPS: each thread of each process appends to `log` (O_APPEND, a description of its own),
 * to `both` (O_APPEND, the description that all inherited), writes at the shared position of `shared`, takes the next
 * record of `tickets` at its shared position, and overwrites its own place in `table`, again and again. What it took
 * and when it had written which step it notes in `seen.N`. One more process overwrites parts of `log`'s head.
 * A file `stop` ends it early.
 */
#include "say.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { RECORD = 32 };
static int both, shared, tickets, table, process, threads, steps;

static void record(char *to, const char *what, long who, long step)
{
    char text[RECORD + 1];
    snprintf(text, sizeof text, "%-8s %04ld %08ld .......\n", what, who, step);
    memcpy(to, text, RECORD);
    to[RECORD - 1] = '\n';
}

static void *working(void *which)
{
    long me = process * threads + (long)which;
    char text[RECORD], name[32], ticket[RECORD];
    int log = open("log", O_WRONLY | O_APPEND);
    snprintf(name, sizeof name, "seen.%04ld", me);
    int seen = open(name, O_WRONLY | O_CREAT | O_APPEND, 0644);
    int stopping = 0;
    for (long step = 1; step <= steps; step++) {
        record(text, "log", me, step);
        write(log, text, RECORD);
        record(text, "both", me, step);
        write(both, text, RECORD);
        record(text, "shared", me, step);
        write(shared, text, RECORD);
        if (read(tickets, ticket, RECORD) == RECORD)
            write(seen, ticket, RECORD);
        record(text, "table", me, step);
        pwrite(table, text, RECORD, me * RECORD);
        record(text, "done", me, step);
        write(seen, text, RECORD);
        if (step % 16)
            continue;
        usleep(1500);
        if (stopping)                      /* some steps after it was told, so that the last checkpoint is not the end */
            break;
        stopping = access("stop", F_OK) == 0;
    }
    close(log);
    close(seen);
    return NULL;
}

int main(int count, char **word)
{
    int processes = count > 1 ? atoi(word[1]) : 2;
    threads = count > 2 ? atoi(word[2]) : 2;
    steps = count > 3 ? atoi(word[3]) : 100;
    both = open("both", O_RDWR | O_APPEND);
    shared = open("shared", O_RDWR);
    tickets = open("tickets", O_RDWR);
    table = open("table", O_RDWR);
    lseek(shared, 0, SEEK_END);
    for (process = 0; process < processes; process++) {
        if (fork())
            continue;
        pthread_t thread[16];
        for (long i = 0; i < threads; i++)
            pthread_create(&thread[i], NULL, working, (void *)i);
        for (int i = 0; i < threads; i++)
            pthread_join(thread[i], NULL);
        exit(0);
    }
    pid_t head = fork();
    if (!head) {                       /* makes blocks of old files move to the buffer while others append natively */
        int log = open("log", O_RDWR), table_too = open("tickets", O_RDWR);
        for (int i = 0;; i++) {
            pwrite(log, "*", 1, i % 20 * 8);
            pwrite(table_too, "\n", 1, RECORD - 1 + i % 100 * RECORD);
            usleep(300);
        }
    }
    int status, bad = 0;
    for (int i = 0; i < processes;) {
        pid_t ended = wait(&status);
        if (ended != head)
            i++, bad |= WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    }
    kill(head, SIGKILL);
    wait(&status);
    return bad;
}
