//! How a statically linked program finds the addresses of names.
//!
//! The C library would load modules for what `/etc/nsswitch.conf` lists, made for another C library
//! than the one within the program: at best they are not found, at worst they bring it down. Hosts
//! file and DNS are built in, and need no module.

/// Take addresses from `/etc/hosts` and from DNS alone. To be called before there are threads.
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
pub fn without_modules() {
    unsafe extern "C" {
        fn __nss_configure_lookup(
            database: *const libc::c_char,
            services: *const libc::c_char,
        ) -> libc::c_int;
    }
    // SAFETY: a function of the C library (nss.h) that copies two strings which end in NUL; no
    // other thread looks up anything yet.
    // Where it fails, the configuration of the system counts.
    unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
}

/// Other programs have the system's own C library, whose modules fit.
#[cfg(not(all(target_env = "gnu", target_feature = "crt-static")))]
pub fn without_modules() {}
