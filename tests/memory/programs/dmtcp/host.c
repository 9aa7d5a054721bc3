/* host.c - plays DMTCP's part for a plugin: an image is a forked child, which has the memory of that moment.
 *   host CONTROL        works in its folder; after steps 10 and 20 a checkpoint: image 1, 2. An image goes on as soon as
 *                       CONTROL/go.N is there, and makes CONTROL/done.N at its end
 *   host                without any of that
 */
#include "dmtcp.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void dmtcp_initialize_plugin(void);
static DmtcpPluginDescriptor_t plugin;
static int barriers;
void dmtcp_register_plugin(DmtcpPluginDescriptor_t p) { plugin = p; }
int dmtcp_global_barrier(const char *name) { barriers += name != NULL; return 0; }

static void step(int i, unsigned *state)   /* appends, reads and overwrites, reads and unlinks */
{
    char name[32], line[64] = "";
    int fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    dprintf(fd, "%d %u\n", i, *state);
    close(fd);
    fd = open("table", O_RDWR);
    pread(fd, line, 8, i % 7 * 8);
    for (int k = 0; k < 8; k++)
        *state = *state * 31 + (unsigned char)line[k];
    snprintf(line, sizeof line, "%08x", *state);
    pwrite(fd, line, 8, i % 7 * 8);
    close(fd);
    snprintf(name, sizeof name, "part%d", i);
    fd = open(name, O_RDONLY);
    *state += fd < 0 ? 1000003u : (unsigned)read(fd, line, sizeof line);
    close(fd);
    unlink(name);
}

int main(int argc, char **argv)
{
    unsigned state = 1;
    int image = 0;
    char path[4200] = "";
    dmtcp_initialize_plugin();
    if (argc > 1)
        plugin.event_hook(DMTCP_EVENT_INIT, NULL);
    for (int i = 0; i < 30; i++) {
        step(i, &state);
        if (argc > 1 && (i == 10 || i == 20)) {
            plugin.event_hook(DMTCP_EVENT_PRECHECKPOINT, NULL);
            image++;
            if (fork() == 0) {
                snprintf(path, sizeof path, "%s/go.%d", argv[1], image);
                while (access(path, F_OK) < 0)
                    usleep(10000);
                plugin.event_hook(DMTCP_EVENT_RESTART, NULL);
                if (barriers != 1)
                    return 3;
                argc = 1;
            } else {
                plugin.event_hook(DMTCP_EVENT_RESUME, NULL);
            }
        }
    }
    int fd = open("end", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dprintf(fd, "%u\n", state);
    close(fd);
    if (path[0]) {
        snprintf(path, sizeof path, "%s/done.%d", argv[1], image);
        close(open(path, O_WRONLY | O_CREAT, 0644));
    }
    return 0;
}
