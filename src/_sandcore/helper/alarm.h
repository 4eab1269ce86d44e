/* A clock that interrupts calls which may sleep although they must not.
 *
 * What a call does depends on the flags and options of a socket, and those belong to the command as
 * much: a thread of it clears O_NONBLOCK between the supervisor's setting it and its connect, or lets
 * go of a socket that lingers, whose last holder is then the supervisor. That it is as well where a
 * system call holds a file for a moment only: pidfd_getfd, and what reads /proc/PID/fd or fdinfo. */
#ifndef SANDCORE_ALARM_H
#define SANDCORE_ALARM_H

/* Makes the clock, in a process that has SIGALRM blocked: its number, or a negative errno. */
int alarm_open(void);

/* Between the two a call sleeps for milliseconds at the most, and then says EINTR. */
void alarm_begin(int alarm);
void alarm_end(int alarm);

#endif
