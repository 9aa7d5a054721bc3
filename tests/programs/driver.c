/* The driver's loop, its answers and its bytes; see driver.h. */
#include "driver.h"
#include <stdarg.h>

__thread char data[DATA_MAX];
__thread char *answer_kept;
static char pending[1 << 16];
static size_t pending_length;

void reply(const char *format, ...)
{
    char line[1 << 16];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof line - 1)
        length = sizeof line - 2;
    if (answer_kept) {
        line[length] = 0;
        strcpy(answer_kept, line);
        return;
    }
    line[length++] = '\n';
    for (int done = 0; done < length;) {
        ssize_t wrote = write(1, line + done, length - done);
        if (wrote < 0)
            _exit(99);
        done += wrote;
    }
}

void reply_number(long long value)
{
    if (value < 0)
        reply("-1 %s", strerrorname_np(errno));
    else
        reply("%lld", value);
}

void reply_bytes(long long length, const char *bytes)
{
    if (length < 0)
        reply_number(-1);
    else
        reply("%lld %08x", length, crc32_of(bytes, length, 0));
}

uint32_t crc32_of(const char *bytes, size_t length, uint32_t so_far)
{
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t c = n;
            for (int bit = 0; bit < 8; bit++)
                c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
            table[n] = c;
        }
    uint32_t c = ~so_far;
    for (size_t i = 0; i < length; i++)
        c = table[(c ^ (unsigned char)bytes[i]) & 255] ^ (c >> 8);
    return ~c;
}

void make_bytes(long seed, size_t length, char *out)
{
    static char base[65536];
    static int ready;
    if (!ready) {
        uint32_t x = 20041107;
        for (int i = 0; i < 65536; i++)
            base[i] = (x = x * 1103515245u + 12345u) >> 16;
        ready = 1;
    }
    for (size_t i = 0; i < length; i++)
        out[i] = base[(seed * 257 + i) & 65535];
}

void make_text(long seed, size_t length, char *out)
{
    make_bytes(seed, length, out);
    for (size_t i = 0; i < length; i++)
        out[i] = i % 23 == 22 ? '\n' : 'a' + (unsigned char)out[i] % 26;
    out[length] = 0;
}

long long number(const char *word) { return strtoll(word, NULL, 0); }

size_t size_of(const char *word)
{
    long long n = number(word);
    return n < 0 ? 0 : n > DATA_MAX - 1 ? DATA_MAX - 1 : (size_t)n;
}

int open_flags(const char *word)
{
    static const struct { const char *name; int flag; } known[] = {
        {"r", O_RDONLY}, {"w", O_WRONLY}, {"rw", O_RDWR}, {"creat", O_CREAT}, {"trunc", O_TRUNC}, {"excl", O_EXCL},
        {"append", O_APPEND}, {"cloexec", O_CLOEXEC}, {"sync", O_SYNC}, {"dir", O_DIRECTORY}, {"tmp", O_TMPFILE},
        {"nofollow", O_NOFOLLOW}, {"path", O_PATH}, {0, 0}};
    int flags = 0;
    char copy[128], *rest;                 /* several threads open at once */
    snprintf(copy, sizeof copy, "%s", word);
    for (char *part = strtok_r(copy, ",", &rest); part; part = strtok_r(NULL, ",", &rest))
        for (int i = 0; known[i].name; i++)
            if (!strcmp(part, known[i].name))
                flags |= known[i].flag;
    return flags;
}

static size_t line_given;

static char *next_line(void)
{
    memmove(pending, pending + line_given, pending_length -= line_given);
    line_given = 0;
    for (;;) {
        char *end = memchr(pending, '\n', pending_length);
        if (end) {
            *end = 0;
            line_given = end - pending + 1;
            return pending;
        }
        ssize_t got = read(0, pending + pending_length, sizeof pending - pending_length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return NULL;
        pending_length += got;
    }
}

static const struct entry *find(const char *name)
{
    const struct entry *lists[] = {descriptor_operations, name_operations, stream_operations, run_operations,
                                   map_operations, twin_operations, thread_operations,
                                   crowd_operations};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const struct entry *e = lists[i]; e->name; e++)
            if (!strcmp(e->name, name))
                return e;
    return NULL;
}

void joined(char **word, int count, char *line, size_t room)
{
    size_t length = 0;
    line[0] = 0;
    for (int i = 0; i < count && length < room; i++)
        length += snprintf(line + length, room - length, "%s%s", i ? " " : "", word[i]);
}

void obey(char *line)
{
    char *word[WORDS_MAX] = {0}, *rest = line;
    int count = 0;
    while (count < WORDS_MAX - 1 && (word[count] = strsep(&rest, " ")))
        count++;
    const struct entry *e = find(word[0]);
    if (!e || count - 1 < e->words)
        reply("? %s", word[0]);
    else {
        errno = 0;
        e->run(count, word);
    }
}

int serve(void)
{
    pending_length = line_given = 0;
    for (char *line; (line = next_line());)
        obey(line);
    return 0;
}

int main(void)
{
    make_bytes(0, 0, data);                  /* the tables, before there are threads */
    crc32_of(data, 0, 0);
    return serve();
}
