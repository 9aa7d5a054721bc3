/* Writes to the file old before the C library's own constructor has run; no environment is known then. */
#include <fcntl.h>
#include <unistd.h>

static int written;

static void early(void)
{
    int fd = open("old", O_RDWR);
    written = (int)pwrite(fd, "early", 5, 100);
    close(fd);
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = early;

int main(void) { return written == 5 ? 0 : 1; }
