/* Asks for a checkpoint when there is a file "ask". */
#include <metamori.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    while (access("ask", F_OK) < 0)
        usleep(1000);
    printf("%s\n", metamori_checkpoint() >= 0 ? "asked" : "refused");
    return 3;
}
