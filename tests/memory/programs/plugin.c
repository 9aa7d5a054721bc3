/* A library that is replaced while it is loaded; much lies before what is called, and nobody has looked at it. */
#include <string.h>

static const char filler[1 << 18] = { 1 };
__attribute__((aligned(65536))) void says(char *text)
{
    strcpy(text, "the library that was replaced");
    text[0] += filler[5];
}
