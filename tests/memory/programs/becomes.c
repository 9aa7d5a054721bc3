/* Becomes itself again and again, and once in a while fails to become what is not there. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int left = atoi(argv[1]);
    char text[20];
    if (left % 10 == 0)
        execl("/nowhere/at/all", "nothing", NULL);
    snprintf(text, sizeof text, "%d", left - 1);
    if (left > 0)
        execl(argv[0], argv[0], text, NULL);
    printf("done %d\n", argc);
    return 4;
}
