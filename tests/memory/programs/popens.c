/* popens.c - starts shells by popen without a pause, and says what they say. */
#include <stdio.h>

int main(void)
{
    char line[32];
    for (int i = 0; i < 250; i++) {
        FILE *shell = popen("echo said", "r");
        if (!shell || !fgets(line, sizeof line, shell) || pclose(shell))
            return 1;
        printf("%d %s", i, line);
    }
    return 0;
}
