/* old_names.h - the names that functions of the C library had before glibc 2.34 moved them into libc.so.6.
 *
 * They have not changed since; linked under their newest version the library would start nowhere else.  Included by every
 * file of every library that we build (setup.py, OLD_NAMES): tests/packaging/test_install.py asserts what is reached.
 */
#ifdef __x86_64__
__asm__(".symver dladdr,dladdr@GLIBC_2.2.5");
__asm__(".symver dlinfo,dlinfo@GLIBC_2.3.3");
__asm__(".symver dlerror,dlerror@GLIBC_2.2.5");
__asm__(".symver dlmopen,dlmopen@GLIBC_2.3.4");
__asm__(".symver pthread_mutexattr_init,pthread_mutexattr_init@GLIBC_2.2.5");
__asm__(".symver pthread_mutexattr_settype,pthread_mutexattr_settype@GLIBC_2.2.5");
#ifndef __SANITIZE_ADDRESS__           /* its library has one of its own, without a version, and ld takes neither */
__asm__(".symver pthread_setcancelstate,pthread_setcancelstate@GLIBC_2.2.5");
#endif
__asm__(".symver pthread_testcancel,pthread_testcancel@GLIBC_2.2.5");
#endif
