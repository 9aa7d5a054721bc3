/* Writes its second argument and a newline into the file that the first one names. */
#include <stdio.h>

int main(int count, char **word)
{
    FILE *file = count == 3 ? fopen(word[1], "w") : NULL;
    if (!file)
        return 1;
    fprintf(file, "%s\n", word[2]);
    return fclose(file) ? 1 : 0;
}
