/* Faults between a node and its operating system, loaded into the node with LD_PRELOAD.
 *
 * The node is unchanged. Its calls of the C library pass through this file. A memory page shared with the drill
 * (LMQ_DRILL_CONTROL, see control.py) selects the faults: slow or failing syncs, a full disk, clocks that jump, and syncs
 * without effect. LMQ_DRILL_ROUTES replaces dialled loopback ports, so that each direction between two nodes has its
 * own proxy.
 *
 * The file LMQ_DRILL_NAMES replaces the name server. A line is a name, the duration of its look-up in milliseconds, and its
 * addresses: none if the name does not exist, ``!`` if the name server fails. It is read again during a look-up.
 *
 * With LMQ_DRILL_UNDO, every change below LMQ_DRILL_DATA is recorded with the previous content until a sync has made it
 * durable. After a kill -9, the drill undoes what was not durable (power.py). That simulates a power failure; after a mere
 * kill, the operating system keeps the writes of the process. A file's content needs a sync of the file, its name a sync of
 * the folder.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Fields of the shared page, in the order of control.py. */
enum { SYNC_DELAY_US, SYNC_ERRNO, SPACE_LIMITED, SPACE_LEFT, CLOCK_OFFSET_NS, SYNCS_LIE, SYNCS_SEEN, READS_HANG, READS_HUNG,
       PASSED_NS, SHOWS_FREE, FREE_BYTES, FIELDS };

/* Kinds of records in the undo log; power.py reads them. */
enum { WRITE = 1, CREATE = 2, RENAME = 3, UNLINK = 4, SYNC = 5 };

struct record {
    uint64_t kind, domain, inode, offset, old_size, mark, first_bytes, second_bytes;
};

#define ROUTES_MAX 256
#define REAL(name) real_##name = dlsym(RTLD_NEXT, #name)

static int64_t idle[FIELDS];
static volatile int64_t *control = idle;
static struct { uint16_t from, to; } routes[ROUTES_MAX];
static int route_count;
static const char *names;
static int undo = -1;
static char undo_folder[PATH_MAX], data[PATH_MAX];
static size_t data_length;
static uint64_t backups;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int (*real_getaddrinfo)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
static int (*real_connect)(int, const struct sockaddr *, socklen_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite64)(int, const void *, size_t, off64_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_open64)(const char *, int, ...);
static int (*real_ftruncate64)(int, off64_t);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_statvfs64)(const char *, struct statvfs64 *);
static int (*real_clock_gettime)(clockid_t, struct timespec *);

static void read_routes(const char *text)
{
    while (text && *text && route_count < ROUTES_MAX) {
        unsigned from, to;
        if (sscanf(text, "%u=%u", &from, &to) == 2) {
            routes[route_count].from = (uint16_t)from;
            routes[route_count++].to = (uint16_t)to;
        }
        text = strchr(text, ',');
        if (text) text++;
    }
}

static void fail(const char *what)
{
    dprintf(2, "interpose: %s: %s\n", what, strerror(errno));
    _exit(70);
}

static void map_control(const char *path)
{
    int fd = real_open64(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) fail(path);
    void *page = mmap(NULL, FIELDS * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) fail(path);
    control = page;
    close(fd);
}

__attribute__((constructor)) static void start(void)
{
    REAL(connect); REAL(write); REAL(pwrite64); REAL(fsync); REAL(fdatasync); REAL(open64); REAL(ftruncate64);
    REAL(rename); REAL(unlink); REAL(clock_gettime); REAL(getaddrinfo); REAL(statvfs64);
    names = getenv("LMQ_DRILL_NAMES");
    read_routes(getenv("LMQ_DRILL_ROUTES"));
    const char *path = getenv("LMQ_DRILL_CONTROL");
    if (path) map_control(path);
    const char *folder = getenv("LMQ_DRILL_DATA"), *log = getenv("LMQ_DRILL_UNDO");
    if (!folder || !log) return;
    data_length = (size_t)snprintf(data, sizeof data, "%s/", folder);
    snprintf(undo_folder, sizeof undo_folder, "%s", log);
    char name[PATH_MAX + 16];
    snprintf(name, sizeof name, "%s/log", log);
    undo = real_open64(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (undo < 0) fail(name);
    backups = (uint64_t)getpid() << 32;
}

/* --- network and clock ------------------------------------------------------------------------------------------------------- */

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
    struct sockaddr_in other;
    if (!real_connect) REAL(connect);
    if (route_count && address->sa_family == AF_INET && length >= sizeof other) {
        memcpy(&other, address, sizeof other);
        for (int i = 0; i < route_count; i++)
            if (ntohs(other.sin_port) == routes[i].from && other.sin_addr.s_addr == htonl(INADDR_LOOPBACK)) {
                other.sin_port = htons(routes[i].to);
                return real_connect(fd, (struct sockaddr *)&other, sizeof other);
            }
    }
    return real_connect(fd, address, length);
}

/* Find the line of a name in the file of names, without the name; false if there is none. */
static int line_of(const char *host, char *line, size_t size)
{
    int found = 0, fd = names ? real_open64(names, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    FILE *file = fdopen(fd, "r");
    size_t length = strlen(host);
    /* A trailing dot marks a fully qualified name. */
    if (length && host[length - 1] == '.') length--;
    while (!found && fgets(line, (int)size, file))
        found = strncasecmp(line, host, length) == 0 && line[length] == ' ';
    fclose(file);
    if (found) memmove(line, line + length, strlen(line + length) + 1);
    return found;
}

static long ms_since(const struct timespec *begin)
{
    struct timespec now;
    real_clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - begin->tv_sec) * 1000 + (now.tv_nsec - begin->tv_nsec) / 1000000;
}

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **result)
{
    char line[1024], *rest, *address, *place;
    struct timespec begin, pause = {0, 20000000};
    if (!real_getaddrinfo) REAL(getaddrinfo);
    if (!host || (hints && hints->ai_flags & AI_NUMERICHOST) || !line_of(host, line, sizeof line))
        return real_getaddrinfo(host, port, hints, result);
    real_clock_gettime(CLOCK_MONOTONIC, &begin);
    while (ms_since(&begin) < strtol(line, &rest, 10)) {
        nanosleep(&pause, NULL);
        if (!line_of(host, line, sizeof line)) return EAI_NONAME;
    }
    struct addrinfo **end = result;
    *result = NULL;
    for (address = strtok_r(rest, " \n", &place); address; address = strtok_r(NULL, " \n", &place)) {
        int failure = *address == '!' ? EAI_AGAIN : real_getaddrinfo(address, port, hints, end);
        if (failure) {
            if (*result) freeaddrinfo(*result);
            return failure;
        }
        while (*end) end = &(*end)->ai_next;
    }
    return *result ? 0 : EAI_NONAME;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!real_clock_gettime) REAL(clock_gettime);
    int result = real_clock_gettime(clock, now);
    int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    int64_t offset = is_wall ? control[CLOCK_OFFSET_NS] : clock == CLOCK_MONOTONIC ? control[PASSED_NS] : 0;
    if (result == 0 && offset) {
        int64_t all = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + offset;
        now->tv_sec = all / 1000000000;
        now->tv_nsec = all % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *where)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (where) *where = exact.tv_sec;
    return exact.tv_sec;
}

/* --- the undo log ------------------------------------------------------------------------------------------------------------ */

/* The position of the next record: a sync covers all records of its file before the position at which it began. */
static uint64_t mark_now(void)
{
    struct stat about;
    if (fstat(undo, &about) != 0) fail("undo log");
    return (uint64_t)about.st_size;
}

static void note(struct record head, const void *first, const void *second)
{
    char *whole = malloc(sizeof head + head.first_bytes + head.second_bytes);
    if (!whole) fail("undo log");
    memcpy(whole, &head, sizeof head);
    memcpy(whole + sizeof head, first ? first : "", head.first_bytes);
    memcpy(whole + sizeof head + head.first_bytes, second ? second : "", head.second_bytes);
    size_t size = sizeof head + head.first_bytes + head.second_bytes;
    if (real_write(undo, whole, size) != (ssize_t)size) fail("undo log");
    free(whole);
}

static int below_data(const char *path)
{
    return undo >= 0 && strncmp(path, data, data_length) == 0;
}

/* Return whether the descriptor is a file or folder of the node's data; fill in its status. */
static int is_data(int fd, struct stat *about)
{
    char link[64], path[PATH_MAX];
    if (undo < 0 || fd == undo || fstat(fd, about) != 0 || !(S_ISREG(about->st_mode) || S_ISDIR(about->st_mode))) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 2);
    if (length < 0) return 0;
    path[length] = '/';
    path[length + 1] = 0;
    return below_data(path);
}

/* Return the inode of the folder that contains a path. */
static uint64_t folder_of(const char *path)
{
    char folder[PATH_MAX];
    struct stat about;
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    return stat(folder, &about) == 0 ? about.st_ino : 0;
}

/* Record the bytes that a write is about to replace. */
static void note_overwrite(int fd, const struct stat *about, uint64_t offset, uint64_t count)
{
    uint64_t size = (uint64_t)about->st_size;
    uint64_t kept = offset >= size ? 0 : (offset + count > size ? size - offset : count);
    char *old = malloc(kept + 1);
    char path[64];
    if (!old) fail("undo log");
    if (kept) {
        /* The descriptor may be write-only. */
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int reader = real_open64(path, O_RDONLY | O_CLOEXEC);
        if (reader < 0 || pread64(reader, old, kept, (off64_t)offset) != (ssize_t)kept) fail("reading what is overwritten");
        close(reader);
    }
    struct record head = {WRITE, about->st_ino, about->st_ino, offset, size, 0, kept, 0};
    note(head, old, NULL);
    free(old);
}

/* Keep a file that is about to lose its name; return the name of the copy. */
static int keep(const char *path, char *name, size_t name_size)
{
    snprintf(name, name_size, "%s/%llx", undo_folder, (unsigned long long)++backups);
    return link(path, name) == 0;
}

/* --- the file system ---------------------------------------------------------------------------------------------------------- */

int statvfs64(const char *path, struct statvfs64 *about)
{
    if (!real_statvfs64) REAL(statvfs64);
    int result = real_statvfs64(path, about);
    if (result == 0 && control[SHOWS_FREE]) about->f_bfree = about->f_bavail = (uint64_t)control[FREE_BYTES] / about->f_frsize;
    return result;
}

/* Both structures are the same where off_t has 64 bits. */
int statvfs(const char *path, struct statvfs *about)
{
    return statvfs64(path, (struct statvfs64 *)about);
}

/* --- files ------------------------------------------------------------------------------------------------------------------- */

/* Return how much of a write fits on the disk; -1 with errno set if nothing does. */
static ssize_t room(const struct stat *about, uint64_t offset, size_t count)
{
    if (!control[SPACE_LIMITED]) return (ssize_t)count;
    uint64_t end = offset + count, size = (uint64_t)about->st_size;
    uint64_t growth = end > size ? end - size : 0;
    int64_t left = control[SPACE_LEFT];
    if (growth <= (uint64_t)(left > 0 ? left : 0)) {
        __atomic_fetch_sub((int64_t *)&control[SPACE_LEFT], (int64_t)growth, __ATOMIC_RELAXED);
        return (ssize_t)count;
    }
    errno = ENOSPC;
    return -1;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    struct stat about;
    if (!is_data(fd, &about)) return real_pwrite64(fd, bytes, count, offset);
    pthread_mutex_lock(&lock);
    fstat(fd, &about);
    ssize_t result = room(&about, (uint64_t)offset, count);
    if (result >= 0) {
        note_overwrite(fd, &about, (uint64_t)offset, count);
        result = real_pwrite64(fd, bytes, count, offset);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    return pwrite64(fd, bytes, count, offset);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    struct stat about;
    if (!real_write) REAL(write);
    if (!is_data(fd, &about)) return real_write(fd, bytes, count);
    pthread_mutex_lock(&lock);
    fstat(fd, &about);
    int append = fcntl(fd, F_GETFL) & O_APPEND;
    uint64_t offset = append ? (uint64_t)about.st_size : (uint64_t)lseek64(fd, 0, SEEK_CUR);
    ssize_t result = room(&about, offset, count);
    if (result >= 0) {
        note_overwrite(fd, &about, offset, count);
        result = real_write(fd, bytes, count);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate64(int fd, off64_t size)
{
    struct stat about;
    if (!is_data(fd, &about)) return real_ftruncate64(fd, size);
    pthread_mutex_lock(&lock);
    fstat(fd, &about);
    note_overwrite(fd, &about, (uint64_t)size, (uint64_t)(about.st_size > size ? about.st_size - size : 0));
    int result = real_ftruncate64(fd, size);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate(int fd, off_t size)
{
    return ftruncate64(fd, size);
}

static int open_noted(const char *path, int flags, mode_t mode)
{
    struct stat about;
    if (!real_open64) REAL(open64);
    if (!below_data(path) || !(flags & (O_CREAT | O_TRUNC))) return real_open64(path, flags, mode);
    pthread_mutex_lock(&lock);
    int exists = stat(path, &about) == 0;
    if (exists && (flags & O_TRUNC) && S_ISREG(about.st_mode) && about.st_size) {
        int reader = real_open64(path, O_RDONLY | O_CLOEXEC);
        if (reader < 0) fail(path);
        note_overwrite(reader, &about, 0, (uint64_t)about.st_size);
        close(reader);
    }
    int fd = real_open64(path, flags, mode);
    if (fd >= 0 && !exists) {
        fstat(fd, &about);
        struct record head = {CREATE, folder_of(path), about.st_ino, 0, 0, 0, strlen(path), 0};
        note(head, path, NULL);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_noted(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_noted(path, flags, mode);
}

int rename(const char *from, const char *to)
{
    char kept[PATH_MAX + 32];
    struct stat about;
    if (!below_data(from) || stat(from, &about) != 0) return real_rename(from, to);
    pthread_mutex_lock(&lock);
    if (keep(to, kept, sizeof kept)) {
        struct record head = {UNLINK, folder_of(to), 0, 0, 0, 0, strlen(to), strlen(kept)};
        note(head, to, kept);
    }
    struct record head = {RENAME, folder_of(to), 0, 0, 0, 0, strlen(from), strlen(to)};
    note(head, from, to);
    int result = real_rename(from, to);
    if (result != 0) fail("a rename that was noted failed");
    pthread_mutex_unlock(&lock);
    return result;
}

int unlink(const char *path)
{
    char kept[PATH_MAX + 32];
    if (!below_data(path)) return real_unlink(path);
    pthread_mutex_lock(&lock);
    if (keep(path, kept, sizeof kept)) {
        struct record head = {UNLINK, folder_of(path), 0, 0, 0, 0, strlen(path), strlen(kept)};
        note(head, path, kept);
    }
    int result = real_unlink(path);
    pthread_mutex_unlock(&lock);
    return result;
}

/* --- reads ------------------------------------------------------------------------------------------------------------------- */

ssize_t pread64(int fd, void *bytes, size_t count, off64_t offset)
{
    static ssize_t (*real_pread64)(int, void *, size_t, off64_t);
    struct timespec pause = {0, 5000000};
    if (!real_pread64) REAL(pread64);
    /* 1 for reads of snapshots, 2 for reads of pages. */
    int64_t kind = control[READS_HANG];
    if (kind) {
        char link[64], path[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        path[length < 0 ? 0 : length] = 0;
        if (strstr(path, kind == 1 ? ".snap" : ".page")) {
            __atomic_fetch_add((int64_t *)&control[READS_HUNG], 1, __ATOMIC_RELAXED);
            while (control[READS_HANG] == kind) nanosleep(&pause, NULL);
        }
    }
    return real_pread64(fd, bytes, count, offset);
}

ssize_t pread(int fd, void *bytes, size_t count, off_t offset)
{
    return pread64(fd, bytes, count, offset);
}

/* --- syncs ------------------------------------------------------------------------------------------------------------------- */

static int sync_noted(int fd, int (*real)(int))
{
    struct stat about;
    if (!is_data(fd, &about)) return real(fd);
    uint64_t mark = mark_now();
    __atomic_fetch_add((int64_t *)&control[SYNCS_SEEN], 1, __ATOMIC_RELAXED);
    int64_t delay_us = control[SYNC_DELAY_US];
    if (delay_us) {
        struct timespec pause = {delay_us / 1000000, (delay_us % 1000000) * 1000};
        nanosleep(&pause, NULL);
    }
    if (control[SYNC_ERRNO]) {
        errno = (int)control[SYNC_ERRNO];
        return -1;
    }
    if (control[SYNCS_LIE]) return 0;
    int result = real(fd);
    if (result == 0) {
        pthread_mutex_lock(&lock);
        struct record head = {SYNC, about.st_ino, about.st_ino, 0, 0, mark, 0, 0};
        note(head, NULL, NULL);
        pthread_mutex_unlock(&lock);
    }
    return result;
}

int fsync(int fd)
{
    return sync_noted(fd, real_fsync);
}

int fdatasync(int fd)
{
    return sync_noted(fd, real_fdatasync);
}
