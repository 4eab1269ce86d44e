"""Profiles: policy documents on disk, layered into one policy.

`document` says what a file may hold, `reading` reads one (`wrong` and `explain` tell what is wrong
in it), `settings` takes it apart, `compose` puts settings together, `tighten` lets a project that
is not trusted only take away, `guarding` keeps from commands what profiles are made of, `load`
knows which files count and `where` they lie, `differ` compares two. The rest of the package imports
none of it before there is a profile: most of it needs msgspec.
"""
