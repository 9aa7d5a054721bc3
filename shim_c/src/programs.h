/* programs.h - what is done before a new program starts. */
#ifndef MM_PROGRAMS_H
#define MM_PROGRAMS_H

/* elf.c */
/* what a reason begins with where the program must not even be offered our library: its loader would complain, or fail */
#define MM_STRIP "\001"
long mm_open_program(int dir, const char *path, int flags);
const char *mm_why_not(int fd, int depth);
int mm_calls_by_itself(int fd);

/* exec.c */
struct mm_image {
    char *const *envp;                 /* what the new program gets */
    void *made;                        /* memory for it, or NULL */
    size_t bytes;
    int outside;                       /* the new program will not be followed */
    int limited;                       /* nobody lifts a limit: it gets the program's own */
    uint64_t mask;
};
/* environment.c */
extern const char *mm_library;           /* the file that this library is */
int mm_leads_here(char *const envp[]);
int mm_says_leave(char *const envp[]);
void mm_put_back(struct mm_image *image, char *const envp[]);
void mm_strip(struct mm_image *image, char *const envp[]);
void mm_environment_init(const char *(*keep)(const char *text));
int mm_first_time(uint64_t key);
void mm_show(int fd, uint32_t pif);
void mm_outsider_for_good(uint64_t key, const char *what);
const char *mm_searched(const char *file, char *out, size_t room);
const char *mm_variable(const char *name);
int mm_leave_for(uid_t uid);
int mm_leave_confined(void);
long mm_confining(long number, long a, long b, long c);
void mm_leave_undone(int left);
void mm_before_image(struct mm_image *image, int dir, const char *path, int flags, char *const envp[], int replaces);
void mm_image_failed(struct mm_image *image);
int mm_hidden_environment(void);

#endif
