/* The driver's threads: each does the line that it is given (`on`), or its part of what several do at once (driver_crowd.c). */
#include "driver.h"
#include <pthread.h>
#include <semaphore.h>

#define OP(name) static void op_##name(int count, char **word)
#define WHICH (number(word[1]) % THREADS)

struct worker {
    int living, joins;                       /* joins: it is to take part in what several do */
    pthread_t id;
    sem_t asked, done;
    char *line;                              /* alone: answered straight away */
    char *later;                             /* or when it is asked for: `begin`, `await` */
};
static struct worker workers[THREADS];

static void *working(void *which)
{
    struct worker *me = which;
    for (;;) {
        sem_wait(&me->asked);
        answer_kept = me->later;
        if (me->line)
            obey(me->line);
        else if (me->joins)
            join_crowd((int)(me - workers));
        else
            return NULL;
        me->line = NULL;
        me->joins = 0;
        sem_post(&me->done);
    }
}

void wake_thread(int which)
{
    workers[which].joins = 1;
    sem_post(&workers[which].asked);
}

void await_thread(int which)
{
    while (sem_wait(&workers[which].done))
        ;
}

void forget_threads(void) { memset(workers, 0, sizeof workers); }

OP(thread)
{
    (void)count;
    struct worker *w = &workers[WHICH];
    memset(w, 0, sizeof *w);
    sem_init(&w->asked, 0, 0);
    sem_init(&w->done, 0, 0);
    w->living = !pthread_create(&w->id, NULL, working, w);
    reply("%d", w->living - 1);
}

OP(on) /* thread, then a line for it */
{
    struct worker *w = &workers[WHICH];
    char line[4096];
    joined(word + 2, count - 2, line, sizeof line);
    if (!w->living) {
        reply("-1 ESRCH");
        return;
    }
    w->line = line;
    sem_post(&w->asked);
    while (sem_wait(&w->done))
        ;
}

OP(begin) /* the same, without waiting: others go on meanwhile */
{
    struct worker *w = &workers[WHICH];
    w->line = malloc(4096);
    w->later = malloc(1 << 16);
    joined(word + 2, count - 2, w->line, 4096);
    sem_post(&w->asked);
    reply("0");
}

OP(await) /* thread: the answer to what it began */
{
    (void)count;
    struct worker *w = &workers[WHICH];
    while (sem_wait(&w->done))
        ;
    char *answer = w->later;
    w->later = NULL;
    reply("%s", answer);
    free(answer);
}

static void over(struct worker *w)
{
    void *result = NULL;
    int bad = pthread_join(w->id, &result);
    w->living = 0;
    reply("%d", bad ? -1 : result == PTHREAD_CANCELED);
}

OP(ready) /* thread: has it done what it began? */
{
    (void)count;
    int ready = 0;
    sem_getvalue(&workers[WHICH].done, &ready);
    reply("%d", ready);
}

OP(endthread)
{
    (void)count;
    sem_post(&workers[WHICH].asked);
    over(&workers[WHICH]);
}

OP(cancelthread)
{
    (void)count;
    pthread_cancel(workers[WHICH].id);
    over(&workers[WHICH]);
}

const struct entry thread_operations[] = {
    {"thread", 1, op_thread},       {"on", 2, op_on},
    {"begin", 2, op_begin},         {"await", 1, op_await}, {"ready", 1, op_ready},
    {"endthread", 1, op_endthread}, {"cancelthread", 1, op_cancelthread},
    {0, 0, 0}};
