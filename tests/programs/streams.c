/* Every way in which stdio reads, writes, opens and positions. */
#include "say.h"
#include <fcntl.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio_ext.h>
#include <wchar.h>

static char buffer[20000];

static int through_va_list(FILE *f, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vfprintf(f, format, arguments);
    va_end(arguments);
    return n;
}

static int scan_va_list(FILE *f, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vfscanf(f, format, arguments);
    va_end(arguments);
    return n;
}

static void writing(void)
{
    FILE *f = fopen("text", "w+");
    SAY(fprintf(f, "%s %d %5.2f\n", "words", 42, 3.14159));
    SAY(through_va_list(f, "%x|%-6s|\n", 255, "left"));
    SAY(fputs("a line by fputs\n", f));
    SAY(fputc('f', f));
    SAY(putc('p', f));
    SAY(putc_unlocked('u', f));
    SAY(fputc_unlocked('n', f));
    SAY(fputs_unlocked("unlocked\n", f));
    SAY(fwrite("0123456789", 2, 5, f));
    SAY(fwrite_unlocked("abcdef\n", 1, 7, f));
    SAY(putw(0x41424344, f));
    SAY(dprintf(fileno(f), "by descriptor, before the buffer\n"));
    SAY(fflush_unlocked(f));
    SAY(ftell(f));
    SAY(ftello(f));
    memset(buffer, 'x', sizeof buffer);
    SAY(fwrite(buffer, 1, sizeof buffer, f));
    SAY(fseeko(f, 100, SEEK_SET));
    SAY(fwrite("[overwritten]", 1, 13, f));
    SAY(__fpending(f));
    SAY(fclose(f));
}

static void reading(void)
{
    FILE *f = fopen("text", "r");
    char word[64] = "", *line = NULL;
    int number = 0;
    float real = 0;
    size_t room = 0;
    SAY(fscanf(f, "%60s %d %f", word, &number, &real));
    printf("%s %d %.2f\n", word, number, real);
    SAY(scan_va_list(f, "%x", &number));
    SAY(number);
    SAY(fgets(buffer, 30, f) != NULL);
    say_bytes("fgets", buffer, strlen(buffer));
    SAY(getline(&line, &room, f));
    say_bytes("getline", line, strlen(line));
    SAY(getdelim(&line, &room, 'u', f));
    say_bytes("getdelim", line, strlen(line));
    SAY(fgetc(f));
    SAY(getc(f));
    SAY(getc_unlocked(f));
    SAY(fgetc_unlocked(f));
    SAY(getw(f));
    SAY(fgets_unlocked(buffer, 10, f) != NULL);
    SAY(ungetc('Z', f));
    SAY(ungetc('Y', f));
    SAY(fgetc(f));
    SAY(fread(buffer, 1, 5, f));
    say_bytes("fread", buffer, 5);
    SAY(fread_unlocked(buffer, 3, 4, f));
    SAY(fseek(f, 90, SEEK_SET));
    SAY(fread(buffer, 1, 60, f));
    say_bytes("fread", buffer, 60);
    SAY(fseek(f, -3, SEEK_END));
    SAY(fread(buffer, 1, 100, f));
    SAY(feof(f) != 0);
    SAY(ferror(f) != 0);
    SAY(fgetc(f));
    clearerr(f);
    SAY(feof_unlocked(f) != 0);
    rewind(f);
    SAY(ftell(f));
    fpos_t place;
    SAY(fseek(f, 7, SEEK_CUR));
    SAY(fgetpos(f, &place));
    SAY(fgetc(f));
    SAY(fsetpos(f, &place));
    SAY(fgetc(f));
    SAY(fputc('x', f));
    SAY(ferror(f) != 0);
    clearerr_unlocked(f);
    SAY(fclose(f));
    free(line);
}

static void buffering(void)
{
    static char own[300];
    FILE *f = fopen("buffered", "w+");
    setbuf(f, NULL);
    SAY(fputs("unbuffered", f));
    SAY(lseek(fileno(f), 0, SEEK_CUR));
    SAY(fclose(f));
    f = fopen("buffered", "r+");
    SAY(setvbuf(f, own, _IOFBF, sizeof own));
    SAY(fseek(f, 4, SEEK_SET));
    for (int i = 0; i < 100; i++)
        fprintf(f, "%d,", i);
    SAY(ftell(f));
    SAY(fseek(f, 0, SEEK_SET));
    SAY(fread(buffer, 1, 250, f));
    say_bytes("own buffer", buffer, 50);
    SAY(fclose(f));
    f = fopen("buffered", "a");
    setlinebuf(f);
    SAY(fputs("one line\nand a half", f));
    SAY(lseek(fileno(f), 0, SEEK_END));
    SAY(fclose(f));
    f = fopen("buffered", "a+");
    SAY(fread(buffer, 1, 3, f));
    SAY(fseek(f, 0, SEEK_CUR));
    SAY(fputs("at the end\n", f));
    SAY(ftell(f));
    __fpurge(f);
    SAY(fclose(f));
}

static void opening(void)
{
    SAY(fopen("missing", "r") == NULL);
    SAY(fopen("missing", "r+") == NULL);
    SAY(fopen(".", "w") == NULL);
    SAY(fopen("text", "wx") == NULL);
    SAY(fopen("text", "nonsense") == NULL);
    FILE *f = fopen("text", "re");
    SAY(fileno(f));
    f = freopen("buffered", "r+", f);
    SAY(fileno(f));
    SAY(fgetc(f));
    f = freopen(NULL, "r", f);
    SAY(fgetc(f));
    SAY(close(fileno(f)));             /* behind the stream's back */
    f = freopen("fresh", "w", f);
    SAY(f ? fileno(f) : -1);
    SAY(fputs("fresh words", f));
    SAY(fclose(f));
    int fd = open("text", O_RDWR);
    f = fdopen(fd, "r+");
    SAY(fseek(f, 50, SEEK_SET));
    SAY(fputs("<by fdopen>", f));
    SAY(fflush(f));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(fclose(f));
    SAY(close(fd));
    SAY(fdopen(fd, "r") == NULL);
    f = tmpfile();
    SAY(fputs("temporary", f));
    rewind(f);
    SAY(fgets(buffer, 100, f) != NULL);
    SAY(fclose(f));
    char *memory = NULL;
    size_t size = 0;
    f = open_memstream(&memory, &size);
    SAY(fputs("in memory", f));
    SAY(fclose(f));
    say_bytes("memory", memory, size);
    f = fmemopen(memory, size, "r");
    SAY(fgetc(f));
    SAY(fclose(f));
    f = fmemopen(memory, size, "w");
    SAY(fputs("x", f));
    SAY(fclose(f));
    say_bytes("memory", memory, size);
    free(memory);
    f = popen("cat buffered | wc -c; echo done > piped", "r");
    SAY(fgets(buffer, 100, f) != NULL);
    say_bytes("popen", buffer, strlen(buffer));
    SAY(pclose(f));
}

static void wide(void)
{
    static wchar_t line[200];
    FILE *f = fopen("wide", "w+, ccs=UTF-8");
    SAY(f != NULL);
    SAY(fwide(f, 0) > 0);
    SAY(fwprintf(f, L"%ls %d\n", L"gr\u00fc\u00df", 7));
    SAY(fputws(L"\u4f60\u597d\n", f) >= 0);
    SAY(fputwc(L'\u20ac', f));
    SAY(putwc(L'\n', f));
    SAY(ftell(f));
    rewind(f);
    SAY(fgetws(line, 100, f) != NULL);
    SAY(wcslen(line));
    SAY(fgetwc(f));
    SAY(ungetwc(L'\u2211', f));
    SAY(getwc(f));
    SAY(getwc(f));
    SAY(fgetwc(f));
    SAY(fwscanf(f, L"%ls", line));
    SAY(wcslen(line));
    SAY(fgetwc(f));
    SAY((int)fgetwc(f));
    SAY(feof(f) != 0);
    SAY(fclose(f));
}

static void standard_output(void)
{
    fflush(stdout);
    int saved = dup(1);
    FILE *f = fopen("output", say_round == 1 ? "w" : "a");
    dup2(fileno(f), 1);
    printf("printed into a file, round %d\n", say_round);
    puts("and put");
    putchar('c');
    putchar_unlocked('\n');
    fflush(stdout);
    (void)!system("echo from a child; echo and to stderr 1>&2 2>> output");
    dup2(saved, 1);
    close(saved);
    SAY(fclose(f));
}

static void exercise(void)
{
    writing();
    reading();
    buffering();
    opening();
    wide();
    standard_output();
    SAY(unlink("fresh"));
}

int main(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    return say_rounds(3, exercise);
}
