/* Code on its stack, made executable as the C library does it when a library is loaded that needs that. */
#include <metamori.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

extern void *__libc_stack_end;

int main(void)
{
    static const unsigned char returns_42[] = { 0xb8, 42, 0, 0, 0, 0xc3 };
    unsigned char code[16];
    void *page = (void *)((uintptr_t)__libc_stack_end & ~4095ul);
    if (mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC | PROT_GROWSDOWN)) {
        perror("mprotect");
        return 1;
    }
    int r = metamori_checkpoint();
    fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
    memcpy(code, returns_42, sizeof returns_42);
    __asm__ volatile("" : : "r"(code) : "memory");
    printf("%d\n", ((int (*)(void))(uintptr_t)code)());
    return 0;
}
