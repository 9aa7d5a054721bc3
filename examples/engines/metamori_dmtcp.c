/* metamori_dmtcp.c - a DMTCP plugin that makes it right about files.
 *   cc -shared -fPIC -I<DMTCP>/include metamori_dmtcp.c -o metamori_dmtcp.so
 *   METAMORI_FILES=... METAMORI_STORE=... METAMORI_HOOK=<here>/files dmtcp_launch --with-plugin $PWD/metamori_dmtcp.so PROGRAM
 * Invariants
 *  1. `kept` is set before the image is written, so the index is in the image: whichever image is continued knows its files.
 *  2. Files are back before DMTCP opens any: its RESTART hooks run in the reverse order of registration, so we register last.
 *  3. No process goes on before every process has its files back (a barrier).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dmtcp.h"

static int kept;

static void give_up(const char *what)
{
    dprintf(2, "metamori: %s\n", what);
    _exit(99);
}

/* The script, outside DMTCP's reach: it is no process of the computation.  No pipe and no fork: DMTCP has wrappers for both.
 * The number that it prints, -1 when it failed. */
static int files(const char *verb, int index)
{
    static char *environment[4096];
    extern char **environ;
    const char *hook = getenv("METAMORI_HOOK"), *store = getenv("METAMORI_STORE");
    char number[16], answer[4200], text[16] = "";
    if (!hook || !store)
        give_up("METAMORI_HOOK, METAMORI_STORE and METAMORI_FILES say what to do; one of them is not set");
    int n = 0;
    for (char **e = environ; *e && n < 4095; e++)
        if (strncmp(*e, "LD_PRELOAD=", 11) && strncmp(*e, "DMTCP_", 6))
            environment[n++] = *e;
    environment[n] = NULL;
    snprintf(number, sizeof number, "%d", index);
    snprintf(answer, sizeof answer, "%s.answer.%d", store, (int)getpid());
    char *words[] = { (char *)hook, (char *)verb, number, NULL };
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, answer, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t pid;
    int status = 0, error = posix_spawn(&pid, hook, &actions, NULL, words, environment);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return -1;
    if (waitpid(pid, &status, 0) == pid && status)
        return -1;
    int fd = open(answer, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    unlink(answer);
    return got > 0 ? atoi(text) : -1;
}

static void on_event(DmtcpEvent_t event, DmtcpEventData_t *data)
{
    (void)data;
    if (event == DMTCP_EVENT_PRECHECKPOINT) {
        kept = files("keep", 0);
        if (kept < 0)                      /* a plugin cannot refuse a checkpoint: the restart will */
            dprintf(2, "metamori: the files could not be kept: the program cannot be continued from this image\n");
    } else if (event == DMTCP_EVENT_RESTART) {
        if (kept <= 0 || files("back", kept) != kept)
            give_up("the files could not be put back");
        dmtcp_global_barrier("metamori: files are back");
    }
}

static DmtcpPluginDescriptor_t plugin = {
    DMTCP_PLUGIN_API_VERSION, DMTCP_PACKAGE_VERSION, "metamori", "Metamori", "", "files go back with the memory", on_event
};

/* DMTCP_DECL_PLUGIN would register us first. */
void dmtcp_initialize_plugin(void)
{
    void (*next)(void) = (void (*)(void))dlsym(RTLD_NEXT, "dmtcp_initialize_plugin");
    if (next)
        next();
    dmtcp_register_plugin(plugin);
}
