/* aliases.h - expands calls.def's aliases for the one group that the including file defined ALIAS_<group> for. */
#ifndef ALIAS_fd
#define ALIAS_fd(alias, name)
#endif
#ifndef ALIAS_data
#define ALIAS_data(alias, name)
#endif
#ifndef ALIAS_alloc
#define ALIAS_alloc(alias, name)
#endif
#ifndef ALIAS_copy
#define ALIAS_copy(alias, name)
#endif
#ifndef ALIAS_path
#define ALIAS_path(alias, name)
#endif
#ifndef ALIAS_temp
#define ALIAS_temp(alias, name)
#endif
#ifndef ALIAS_stat
#define ALIAS_stat(alias, name)
#endif
#ifndef ALIAS_stream
#define ALIAS_stream(alias, name)
#endif
#ifndef ALIAS_process
#define ALIAS_process(alias, name)
#endif
#ifndef ALIAS_pid
#define ALIAS_pid(alias, name)
#endif
#ifndef ALIAS_rights
#define ALIAS_rights(alias, name)
#endif
#ifndef ALIAS_wait
#define ALIAS_wait(alias, name)
#endif
#ifndef ALIAS_signal
#define ALIAS_signal(alias, name)
#endif
#ifndef ALIAS_map
#define ALIAS_map(alias, name)
#endif
#ifndef ALIAS_engine
#define ALIAS_engine(alias, name)
#endif
#ifndef ALIAS_exec
#define ALIAS_exec(alias, name)
#endif
#ifndef ALIAS_pass
#define ALIAS_pass(alias, name)
#endif
#ifndef ALIAS_shell
#define ALIAS_shell(alias, name)
#endif
#ifndef ALIAS_syscall
#define ALIAS_syscall(alias, name)
#endif
#include "libc/calls.def"
