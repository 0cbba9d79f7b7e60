//! The buffer pool: a fixed amount of aligned memory that lanes fill and the store empties.
//!
//! The pool is the back-pressure of a whole transfer: no free buffer, no read. All buffers lie in
//! one allocation aligned to [`ALIGN_BYTES`], so that the store can register it once with the
//! kernel and write from it with direct I/O. A [`Buffer`] is owned by exactly one holder and goes
//! back by being dropped. Waiting is a plain future without a runtime of its own.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Alignment of every buffer's address and of [`Pool::buffer_bytes`]: one page, which is what
/// direct I/O asks for on every common device.
pub const ALIGN_BYTES: usize = 4096;

/// A fixed set of equal buffers; cheap to clone, all clones share the same memory.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    /// What the allocator gave.
    allocation: NonNull<u8>,
    /// The first aligned address in it.
    base: NonNull<u8>,
    buffer_bytes: usize,
    count: usize,
    state: Mutex<State>,
}

struct State {
    free: Vec<u32>,
    /// Waiters by ticket; a woken waiter that no longer wants a buffer passes the turn on.
    waiters: VecDeque<(u64, Waker)>,
    next_ticket: u64,
}

// SAFETY: the memory behind `base` is only reached through `Buffer`s, and each index is owned by
// at most one buffer at a time (it is either in `free` or in exactly one `Buffer`).
unsafe impl Send for Shared {}
// SAFETY: as above; the bookkeeping is behind a mutex.
unsafe impl Sync for Shared {}

/// One buffer of a pool, filled from its start: [`Buffer::filled`] bytes are valid data.
pub struct Buffer {
    shared: Arc<Shared>,
    index: u32,
    filled: usize,
}

impl Pool {
    /// As [`Pool::try_new`], for sizes that are known to be small.
    ///
    /// # Panics
    /// If there is not so much memory.
    pub fn new(count: usize, buffer_bytes: usize) -> Self {
        match Self::try_new(count, buffer_bytes) {
            Some(pool) => pool,
            None => panic!("no memory for {count} buffers of {buffer_bytes} bytes"),
        }
    }

    /// A pool of `count` buffers of `buffer_bytes` each (rounded up to a multiple of
    /// [`ALIGN_BYTES`]); both are at least one. The memory is reserved at once and touched only
    /// when used; `None` if it cannot be had.
    pub fn try_new(count: usize, buffer_bytes: usize) -> Option<Self> {
        let count = count.max(1).min(u32::MAX as usize);
        let buffer_bytes = buffer_bytes.max(1).checked_next_multiple_of(ALIGN_BYTES)?;
        let layout = Self::layout(count, buffer_bytes)?;
        // SAFETY: the layout has a non-zero size.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let offset = allocation.align_offset(ALIGN_BYTES);
        debug_assert!(offset < ALIGN_BYTES);
        // SAFETY: the layout has so much more than the buffers need.
        let base = unsafe { allocation.add(offset) };
        let state = State {
            free: (0..count as u32).rev().collect(),
            waiters: VecDeque::new(),
            next_ticket: 0,
        };
        let state = Mutex::new(state);
        Some(Self { shared: Arc::new(Shared { allocation, base, buffer_bytes, count, state }) })
    }

    /// `None` if it is larger than an address space. We align it ourselves: what the allocator has
    /// to align it also has to zero by hand, which touches all of it.
    fn layout(count: usize, buffer_bytes: usize) -> Option<Layout> {
        let bytes = count.checked_mul(buffer_bytes)?.checked_add(ALIGN_BYTES)?;
        Layout::from_size_align(bytes, 1).ok()
    }

    /// Size of one buffer in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.shared.buffer_bytes
    }

    /// How many buffers there are, free or not.
    pub fn count(&self) -> usize {
        self.shared.count
    }

    /// How many buffers are free now.
    pub fn free_count(&self) -> usize {
        self.shared.lock().free.len()
    }

    /// Address and length of the whole allocation, for registration with the kernel. Buffer `i`
    /// begins `i * buffer_bytes` into it.
    pub fn region(&self) -> (*mut u8, usize) {
        (self.shared.base.as_ptr(), self.shared.count * self.shared.buffer_bytes)
    }

    /// An empty buffer if one is free.
    pub fn try_take(&self) -> Option<Buffer> {
        let index = self.shared.lock().free.pop()?;
        Some(Buffer { shared: Arc::clone(&self.shared), index, filled: 0 })
    }

    /// An empty buffer, waiting for one in the order of asking.
    pub fn take(&self) -> Take {
        Take { pool: self.clone(), ticket: None }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Pool({} of {} buffers of {} bytes free)",
            self.free_count(),
            self.count(),
            self.buffer_bytes()
        )
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, index: u32) {
        let waker = {
            let mut state = self.lock();
            state.free.push(index);
            state.waiters.front().map(|(_, waker)| waker.clone())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Some(layout) = Pool::layout(self.count, self.buffer_bytes) else { return };
        // SAFETY: it came from `alloc_zeroed` with this very layout, and no buffer is left: each
        // holds an `Arc` of us.
        unsafe { dealloc(self.allocation.as_ptr(), layout) }
    }
}

/// The future of [`Pool::take`].
pub struct Take {
    pool: Pool,
    ticket: Option<u64>,
}

impl Future for Take {
    type Output = Buffer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Buffer> {
        let this = &mut *self;
        let shared = Arc::clone(&this.pool.shared);
        let mut state = shared.lock();
        let first = match this.ticket {
            Some(ticket) => state.waiters.front().is_none_or(|&(front, _)| front == ticket),
            None => state.waiters.is_empty(),
        };
        if first && let Some(index) = state.free.pop() {
            if let Some(ticket) = this.ticket.take() {
                state.waiters.retain(|&(other, _)| other != ticket);
            }
            let next = if state.free.is_empty() {
                None
            } else {
                state.waiters.front().map(|(_, waker)| waker.clone())
            };
            drop(state);
            if let Some(waker) = next {
                waker.wake();
            }
            return Poll::Ready(Buffer { shared, index, filled: 0 });
        }
        match this.ticket {
            Some(ticket) => {
                if let Some(entry) = state.waiters.iter_mut().find(|(other, _)| *other == ticket) {
                    entry.1.clone_from(cx.waker());
                }
            }
            None => {
                let ticket = state.next_ticket;
                state.next_ticket += 1;
                state.waiters.push_back((ticket, cx.waker().clone()));
                this.ticket = Some(ticket);
            }
        }
        Poll::Pending
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let next = {
            let mut state = self.pool.shared.lock();
            state.waiters.retain(|&(other, _)| other != ticket);
            if state.free.is_empty() {
                None
            } else {
                state.waiters.front().map(|(_, waker)| waker.clone())
            }
        };
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

impl Buffer {
    /// Position in the pool, which is also the kernel's index of the registered buffer.
    pub fn index(&self) -> usize {
        self.index as usize
    }

    /// How many bytes can be stored in all.
    pub fn capacity(&self) -> usize {
        self.shared.buffer_bytes
    }

    /// How many bytes from the start are valid data.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// The room after the valid data, to read into.
    pub fn spare(&mut self) -> &mut [u8] {
        let filled = self.filled;
        &mut self.whole()[filled..]
    }

    /// Declare `bytes` more bytes, just written into [`Buffer::spare`], as valid; never past the
    /// capacity.
    pub fn advance(&mut self, bytes: usize) {
        self.filled = (self.filled + bytes).min(self.capacity());
    }

    /// Keep only the first `bytes` bytes of valid data.
    pub fn truncate(&mut self, bytes: usize) {
        self.filled = self.filled.min(bytes);
    }

    /// Copy as much of `data` as fits behind the valid data; returns how many bytes that was.
    pub fn push(&mut self, data: &[u8]) -> usize {
        let spare = self.spare();
        let bytes = spare.len().min(data.len());
        spare[..bytes].copy_from_slice(&data[..bytes]);
        self.filled += bytes;
        bytes
    }

    /// The whole capacity, valid or not (all of it was zeroed once, so it is always initialised).
    pub fn whole(&mut self) -> &mut [u8] {
        // SAFETY: this buffer alone owns its part of the allocation, which is zero-initialised
        // and lives as long as `shared`.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.shared.buffer_bytes) }
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: the index is below the pool's count, so the offset lies in the allocation.
        unsafe { self.shared.base.as_ptr().add(self.index as usize * self.shared.buffer_bytes) }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: as in `whole`; `filled` never exceeds the capacity.
        unsafe { std::slice::from_raw_parts(self.start(), self.filled) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let filled = self.filled;
        &mut self.whole()[..filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.shared.give_back(self.index);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}, {} of {} bytes)", self.index, self.filled, self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    /// What this process has in memory of its own, in bytes.
    #[cfg(target_os = "linux")]
    fn resident_bytes() -> Option<usize> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()? * 1024)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_touched_only_when_used() {
        // Asked for aligned zeroed memory, the allocator wrote the zeros itself: 55 ms and all of
        // the pool in memory, for a file of a kilobyte.
        const SIZE: usize = 1 << 30;
        let Some(before) = resident_bytes() else {
            println!("skipped: this kernel does not tell of a process's memory");
            return;
        };
        let pool = Pool::new(SIZE >> 20, 1 << 20);
        drop(pool.try_take().expect("a buffer"));
        let grown = resident_bytes().expect("as before").saturating_sub(before);
        assert!(grown < SIZE / 4, "{grown} bytes");
    }

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn buffers_are_aligned_distinct_and_come_back() {
        let pool = Pool::new(3, 5000);
        assert_eq!(pool.buffer_bytes(), 8192);
        let mut held: Vec<Buffer> = (0..3).map(|_| pool.try_take().unwrap()).collect();
        assert!(pool.try_take().is_none());
        for (i, buffer) in held.iter_mut().enumerate() {
            assert_eq!(buffer.whole().as_ptr() as usize % ALIGN_BYTES, 0);
            buffer.whole().fill(i as u8);
            buffer.advance(8192);
        }
        for (i, buffer) in held.iter().enumerate() {
            assert!(buffer.iter().all(|&b| b == i as u8));
        }
        held.clear();
        assert_eq!(pool.free_count(), 3);
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        // `--memory 1T` ended the program with a backtrace.
        assert!(Pool::try_new(usize::MAX, 4096).is_none());
        assert!(Pool::try_new(u32::MAX as usize, 1 << 40).is_none());
        assert!(Pool::try_new(1, usize::MAX).is_none());
    }

    #[test]
    fn waiting_is_first_come_first_served_and_survives_a_waiter_that_leaves() {
        let pool = Pool::new(1, 4096);
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        let held = pool.try_take().unwrap();
        let mut first = Box::pin(pool.take());
        let mut second = Box::pin(pool.take());
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        drop(held);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(second.as_mut().poll(&mut cx).is_pending(), "the first one's turn");
        drop(first);
        assert_eq!(count.0.load(Ordering::SeqCst), 2, "the turn is passed on");
        assert!(second.as_mut().poll(&mut cx).is_ready());
    }
}
