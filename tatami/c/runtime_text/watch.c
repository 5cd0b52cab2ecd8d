/* Pages of private memory that were written, found without reading them: pages are write-protected by userfaultfd, the kernel
   lifts the protection of a page at its first write (WP_ASYNC, no handler), and a scan of the page map finds such pages
   (PAGEMAP_SCAN). Linux 6.7 and later; where a call fails the caller reads the memory instead. Numbers and structures are
   those of linux/userfaultfd.h and linux/fs.h, which older systems lack. */
#define _GNU_SOURCE
#include "tatami.h"

#define TATAMI_EXPORT __attribute__((visibility("default")))

#if defined(__linux__)
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_userfaultfd
#if defined(__x86_64__)
#define SYS_userfaultfd 323
#else
#define SYS_userfaultfd 282
#endif
#endif

enum { USER_MODE_ONLY = 1, API = 0xAA, WP_UNPOPULATED = 1 << 13, WP_ASYNC = 1 << 15, REGISTER_WP = 1 << 1, PROTECT = 1 };
enum { CHECK_WPASYNC = 2, IS_WRITTEN = 2 };
typedef struct { uint64_t start, bytes; } range_t;
typedef struct { uint64_t api, features, ioctls; } api_t;
typedef struct { range_t range; uint64_t mode, ioctls; } register_t;
typedef struct { range_t range; uint64_t mode; } protect_t;
typedef struct { uint64_t start, end, categories; } region_t;
typedef struct {
    uint64_t size, flags, start, end, walk_end, regions, region_count, pages, inverted, all_of, any_of, returned;
} scan_t;

static int faults = -1, pagemap = -1;
static pid_t owner; /* the process whose memory the descriptors stand for: a forked child inherits them */

/* 1 where pages of this process can be watched. Not to be called by two threads at once. */
TATAMI_EXPORT int tatami_watch_open(void) {
    if (owner == getpid()) return faults >= 0;
    owner = getpid();
    if (faults >= 0) close(faults), close(pagemap); /* the parent's */
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY);
    if (faults < 0) return 0;
    api_t api = {API, WP_ASYNC | WP_UNPOPULATED, 0};
    pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap >= 0 && !ioctl(faults, _IOWR(0xAA, 0x3F, api_t), &api)) return 1;
    if (pagemap >= 0) close(pagemap);
    close(faults);
    faults = pagemap = -1;
    return 0;
}

/* Protect `count` ranges of whole pages, all of whose pages count as not written from here on. 1 if each is. */
TATAMI_EXPORT int tatami_watch(int64_t count, const range_t* ranges) {
    if (owner != getpid() || faults < 0) return 0;
    for (int64_t i = 0; i < count; ++i) {
        register_t taken = {ranges[i], REGISTER_WP, 0};
        protect_t protect = {ranges[i], PROTECT};
        if (ioctl(faults, _IOWR(0xAA, 0x00, register_t), &taken)) return 0;
        if (ioctl(faults, _IOWR(0xAA, 0x06, protect_t), &protect)) return 0;
    }
    return 1;
}

TATAMI_EXPORT void tatami_watch_end(int64_t count, const range_t* ranges) {
    if (owner != getpid() || faults < 0) return;
    for (int64_t i = 0; i < count; ++i) {
        range_t range = ranges[i];
        ioctl(faults, _IOR(0xAA, 0x01, range_t), &range);
    }
}

/* 0 if no page of `count` ranges was written since it was protected; 1 if one was, or nobody can tell: in a forked child,
   and of memory that was mapped anew. */
TATAMI_EXPORT int tatami_written(int64_t count, const range_t* ranges) {
    if (owner != getpid() || faults < 0) return 1;
    for (int64_t i = 0; i < count; ++i) {
        region_t found;
        scan_t scan = {.size = sizeof(scan_t), .flags = CHECK_WPASYNC, .start = ranges[i].start,
                       .end = ranges[i].start + ranges[i].bytes, .regions = (uint64_t)(uintptr_t)&found, .region_count = 1,
                       .pages = 1, .all_of = IS_WRITTEN, .returned = IS_WRITTEN};
        if (ioctl(pagemap, _IOWR('f', 16, scan_t), &scan)) return 1;
    }
    return 0;
}
#else
typedef struct { uint64_t start, bytes; } range_t;
TATAMI_EXPORT int tatami_watch_open(void) { return 0; }
TATAMI_EXPORT int tatami_watch(int64_t count, const range_t* ranges) { return (void)count, (void)ranges, 0; }
TATAMI_EXPORT void tatami_watch_end(int64_t count, const range_t* ranges) { (void)count, (void)ranges; }
TATAMI_EXPORT int tatami_written(int64_t count, const range_t* ranges) { return (void)count, (void)ranges, 1; }
#endif
