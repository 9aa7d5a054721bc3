/* Gives itself another name before each of its checkpoints, and says after each what the kernel says that it is called. */
#include <fcntl.h>
#include <metamori.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CHECKPOINTS 4

#define NAME 8

static int call_itself(const char *name)
{
    char text[2048] = "", *word;
    unsigned long value[52] = { 0 };
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file || !fgets(text, sizeof text, file) || fclose(file) || !(word = strrchr(text, ')')))
        return -1;
    word += 2;
    for (int number = 3; number < 52 && word; number++, word = strchr(word, ' ') ? strchr(word, ' ') + 1 : NULL)
        sscanf(word, "%lu", &value[number]);
    struct prctl_mm_map map = {
        .start_code = value[26], .end_code = value[27], .start_data = value[45], .end_data = value[46], .start_brk = value[47],
        .brk = (unsigned long)sbrk(0), .start_stack = value[28], .arg_start = (unsigned long)name,
        .arg_end = (unsigned long)name + NAME, .env_start = value[50], .env_end = value[51], .exe_fd = (unsigned)-1 };
    return prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0);
}

int main(void)
{
    char called[64] = "", *names = malloc(CHECKPOINTS * NAME);     /* the kernel reads it in memory that is no file's only */
    for (int i = 0; i < CHECKPOINTS; i++) {
        snprintf(names + i * NAME, NAME, "name %d", i);
        if (call_itself(names + i * NAME) != 0)
            return 1;
        metamori_checkpoint();
        int fd = open("/proc/self/cmdline", O_RDONLY);
        if (read(fd, called, sizeof called - 1) < 0)
            return 1;
        close(fd);
        printf("%s\n", called);
        fflush(stdout);
    }
    return 0;
}
