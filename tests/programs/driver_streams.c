/* The driver's operations on streams. The first word after the name is always the slot. */
#include "driver.h"
#include <locale.h>
#include <wchar.h>

#define OP(name) static void op_##name(int count, char **word)
#define UNUSED (void)count, (void)word
#define S slots[number(word[1])]

static FILE *slots[SLOTS_MAX];
static fpos_t positions[SLOTS_MAX];

static void reply_opened(FILE *f) { reply_number(f ? fileno(f) : -1); }

OP(fopen) { UNUSED; reply_opened(S = fopen(word[2], word[3])); }
OP(fdopen) { UNUSED; reply_opened(S = fdopen((int)number(word[2]), word[3])); }
OP(freopen) { UNUSED; reply_opened(S = freopen(word[2], word[3], S)); }
OP(fclose) { UNUSED; reply_number(fclose(S)); }
OP(fileno) { UNUSED; reply_number(fileno(S)); }
OP(fflush) { UNUSED; reply_number(fflush(S)); }
OP(fread) { UNUSED; reply_bytes(fread(data, 1, size_of(word[2]), S), data); }
OP(fwrite)
{
    UNUSED;
    make_bytes(number(word[3]), size_of(word[2]), data);
    reply_number(fwrite(data, 1, size_of(word[2]), S));
}
OP(fputs)
{
    UNUSED;
    make_text(number(word[3]), size_of(word[2]), data);
    reply_number(fputs(data, S) < 0 ? -1 : 0);
}
OP(fprintf)
{
    UNUSED;
    make_text(number(word[3]), size_of(word[2]), data);
    reply_number(fprintf(S, "%s|%ld", data, strtol(word[3], NULL, 0)));
}
OP(dprintf) /* a descriptor in place of the slot */
{
    UNUSED;
    make_text(number(word[3]), size_of(word[2]), data);
    reply_number(dprintf((int)number(word[1]), "%s", data));
}
OP(fgets)
{
    UNUSED;
    char *got = fgets(data, (int)size_of(word[2]), S);
    if (got)
        reply_bytes(strlen(got), got);
    else
        reply("eof");
}
OP(getline)
{
    UNUSED;
    char *line = NULL;
    size_t room = 0;
    ssize_t got = getline(&line, &room, S);
    if (got < 0)
        reply("eof");
    else
        reply_bytes(got, line);
    free(line);
}
OP(fgetc) { UNUSED; reply("%d", fgetc(S)); }
OP(getc) { UNUSED; reply("%d", getc(S)); }
OP(fputc) { UNUSED; reply("%d", fputc((int)number(word[2]), S)); }
OP(putc) { UNUSED; reply("%d", putc((int)number(word[2]), S)); }
OP(ungetc) { UNUSED; reply("%d", ungetc((int)number(word[2]), S)); }
OP(fscanf)
{
    UNUSED;
    char text[64] = "";
    int got = fscanf(S, "%60s", text);
    reply("%d %s", got, text);
}
OP(fseek)
{
    UNUSED;
    int whence = !strcmp(word[3], "set") ? SEEK_SET : !strcmp(word[3], "cur") ? SEEK_CUR : SEEK_END;
    reply_number(fseek(S, (long)number(word[2]), whence));
}
OP(ftell) { UNUSED; reply_number(ftell(S)); }
OP(rewind) { UNUSED; rewind(S); reply_number(0); }
OP(fgetpos) { UNUSED; reply_number(fgetpos(S, &positions[number(word[1])])); }
OP(fsetpos) { UNUSED; reply_number(fsetpos(S, &positions[number(word[1])])); }
OP(feof) { UNUSED; reply("%d", !!feof(S)); }
OP(ferror) { UNUSED; reply("%d", !!ferror(S)); }
OP(clearerr) { UNUSED; clearerr(S); reply_number(0); }
OP(setlocale) { UNUSED; reply_number(setlocale(LC_ALL, word[1]) ? 0 : -1); }
OP(fputwc) { UNUSED; reply("%lld", (long long)(int)fputwc((wchar_t)number(word[2]), S)); }
OP(fgetwc) { UNUSED; reply("%lld", (long long)(int)fgetwc(S)); }
OP(ungetwc) { UNUSED; reply("%lld", (long long)(int)ungetwc((wint_t)number(word[2]), S)); }
OP(fwprintf) { UNUSED; reply_number(fwprintf(S, L"%s\u20ac%d\n", word[2], 7)); }
OP(fgetws)
{
    UNUSED;
    static wchar_t line[1024];
    wchar_t *got = fgetws(line, 1000, S);
    if (got)
        reply_bytes((long long)wcstombs(data, got, DATA_MAX), data);
    else
        reply("eof");
}
OP(setvbuf) /* slot, n|l|f|F, size; F: with a buffer of that size, others have the C library's */
{
    UNUSED;
    int mode = word[2][0] == 'n' ? _IONBF : word[2][0] == 'l' ? _IOLBF : _IOFBF;
    reply_number(setvbuf(S, word[2][0] == 'F' ? malloc(size_of(word[3])) : NULL, mode, size_of(word[3])));
}

const struct entry stream_operations[] = {
    {"fopen", 3, op_fopen}, {"fdopen", 3, op_fdopen}, {"freopen", 3, op_freopen}, {"fclose", 1, op_fclose},
    {"fileno", 1, op_fileno}, {"fflush", 1, op_fflush}, {"fread", 2, op_fread}, {"fwrite", 3, op_fwrite},
    {"fputs", 3, op_fputs}, {"fprintf", 3, op_fprintf}, {"dprintf", 3, op_dprintf}, {"fgets", 2, op_fgets}, {"getline", 1, op_getline},
    {"fgetc", 1, op_fgetc}, {"getc", 1, op_getc}, {"fputc", 2, op_fputc}, {"putc", 2, op_putc},
    {"ungetc", 2, op_ungetc}, {"fscanf", 1, op_fscanf}, {"fseek", 3, op_fseek}, {"ftell", 1, op_ftell},
    {"rewind", 1, op_rewind}, {"fgetpos", 1, op_fgetpos}, {"fsetpos", 1, op_fsetpos}, {"feof", 1, op_feof},
    {"ferror", 1, op_ferror}, {"clearerr", 1, op_clearerr}, {"setvbuf", 3, op_setvbuf},
    {"setlocale", 1, op_setlocale}, {"fputwc", 2, op_fputwc}, {"fgetwc", 1, op_fgetwc}, {"ungetwc", 2, op_ungetwc},
    {"fwprintf", 2, op_fwprintf}, {"fgetws", 1, op_fgetws}, {0, 0, 0}};
