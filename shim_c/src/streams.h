/* streams.h - glibc's FILE from inside. */
#ifndef MM_STREAMS_H
#define MM_STREAMS_H
#include "stream_state.h"
#include <stdio.h>

void mm_stream_empty(FILE *f);
extern int mm_streams_followed;
#endif
