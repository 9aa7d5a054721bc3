/* switch.c - from one stack to another. */
#include "memory/image_engine.h"

#if defined(__x86_64__)
/* mm_switch: note where this thread stands, run on another stack, come back with 0; with 1 when mm_jump brought it back.
 * mm_clone_*: the new process or thread runs on its stack and never returns from there. */
__asm__(
    ".text\n"
    ".hidden mm_switch\n.globl mm_switch\n.type mm_switch,%function\n"
    "mm_switch:\n"
    "  mov %rbx,0(%rdi)\n  mov %rbp,8(%rdi)\n  mov %r12,16(%rdi)\n  mov %r13,24(%rdi)\n"
    "  mov %r14,32(%rdi)\n  mov %r15,40(%rdi)\n  mov %rsp,48(%rdi)\n"
    "  push %rbx\n  mov %rsp,%rbx\n  mov %rdx,%rdi\n  mov %rcx,%rsp\n  call *%rsi\n"
    "  mov %rbx,%rsp\n  pop %rbx\n  xor %eax,%eax\n  ret\n"
    ".hidden mm_jump\n.globl mm_jump\n.type mm_jump,%function\n"
    "mm_jump:\n"
    "  mov $1,%eax\n"
    "  mov 0(%rdi),%rbx\n  mov 8(%rdi),%rbp\n  mov 16(%rdi),%r12\n  mov 24(%rdi),%r13\n"
    "  mov 32(%rdi),%r14\n  mov 40(%rdi),%r15\n  mov 48(%rdi),%rsp\n  ret\n"
    ".hidden mm_on_stack\n.globl mm_on_stack\n.type mm_on_stack,%function\n"
    "mm_on_stack:\n"
    "  mov %rsi,%rsp\n  xor %ebp,%ebp\n  call *%rdi\n  hlt\n"
    ".hidden mm_return_from_signal\n.globl mm_return_from_signal\n.type mm_return_from_signal,%function\n"
    "mm_return_from_signal:\n"         /* byte for byte what unwinders know */
    "  mov $15,%rax\n  syscall\n"
    ".hidden mm_clone_process\n.globl mm_clone_process\n.type mm_clone_process,%function\n"
    "mm_clone_process:\n"
    "  mov %rdx,%r9\n  mov $56,%eax\n  xor %edx,%edx\n  xor %r10d,%r10d\n  xor %r8d,%r8d\n  syscall\n"
    "  test %rax,%rax\n  jnz 2f\n  xor %ebp,%ebp\n  call *%r9\n  hlt\n"
    "2: ret\n"
    ".hidden mm_clone_thread\n.globl mm_clone_thread\n.type mm_clone_thread,%function\n"
    "mm_clone_thread:\n"
    "  push %rbx\n  push %r12\n  mov %rcx,%r10\n  mov %rdx,%rbx\n  mov %r9,%r12\n  xor %edx,%edx\n  mov $56,%eax\n  syscall\n"
    "  test %rax,%rax\n  jnz 3f\n  xor %ebp,%ebp\n  mov %r12,%rdi\n  call *%rbx\n  hlt\n"
    "3: pop %r12\n  pop %rbx\n  ret\n"
    ".hidden mm_clone3_thread\n.globl mm_clone3_thread\n.type mm_clone3_thread,%function\n"
    "mm_clone3_thread:\n"
    "  mov %rcx,%r8\n  mov $435,%eax\n  syscall\n"
    "  test %rax,%rax\n  jnz 4f\n  xor %ebp,%ebp\n  mov %r8,%rdi\n  call *%rdx\n  hlt\n"
    "4: ret\n");
#else
#error "the memory engine knows x86-64"
#endif
