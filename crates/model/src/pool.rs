//! The buffer pool: a fixed amount of aligned memory that lanes fill and the store empties.
//!
//! The pool is the back-pressure of a whole transfer: no free buffer, no read. All buffers lie in
//! one allocation aligned to [`ALIGN_BYTES`], so that the store can register it with the kernel and
//! write from it with direct I/O. A [`Buffer`] has exactly one owner and returns to the pool when
//! dropped. Waiting is a plain future without a runtime of its own.
//!
//! The memory is divided into slots. A buffer is one slot, or up to [`SPAN_MAX`] adjacent ones if
//! its owner fills them so fast that the cost per buffer counts. Slots lie in groups of
//! [`SPAN_MAX`], no buffer crosses a group's end, and the lowest free slots are used first. So used
//! memory stays together: in the processor's caches, and in whole groups for large buffers.
//!
//! A pool of some size begins at a huge-page boundary, so that it can be put into huge pages.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Alignment of every buffer's address and of [`Pool::slot_bytes`]: one page, which direct I/O
/// requires on every common device.
pub const ALIGN_BYTES: usize = 4096;

/// The usual size of a huge page; larger pools are aligned to it.
pub const HUGE_BYTES: usize = 2 << 20;

/// Most slots of one buffer, and slots in a group.
pub const SPAN_MAX: usize = 4;

/// A fixed set of equal slots. Clones are cheap and share the memory.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    /// The address from the allocator.
    allocation: NonNull<u8>,
    /// The first aligned address in it.
    base: NonNull<u8>,
    slot_bytes: usize,
    slots: usize,
    state: Mutex<State>,
}

struct State {
    free: FreeSlots,
    /// Waiters by ticket; a woken waiter that no longer wants a buffer wakes the next one.
    waiters: VecDeque<(u64, Waker)>,
    next_ticket: u64,
}

/// The free slots: a bit for each, a byte for each group.
struct FreeSlots {
    groups: Vec<u8>,
    count: usize,
    /// The lowest group that may have a free slot.
    lowest: usize,
}

impl FreeSlots {
    fn all(slots: usize) -> Self {
        let mut groups = vec![ALL_FREE; slots.div_ceil(SPAN_MAX)];
        if let Some(last) = groups.last_mut() {
            *last >>= (SPAN_MAX - slots % SPAN_MAX) % SPAN_MAX;
        }
        Self { groups, count: slots, lowest: 0 }
    }

    /// Takes the first run of `wanted` adjacent slots, or the longest there is. Returns the index
    /// of its first slot and its length.
    fn take(&mut self, wanted: usize) -> Option<(u32, usize)> {
        let wanted = wanted.clamp(1, SPAN_MAX);
        let mut best: Option<(usize, u32, usize)> = None;
        for (at, &free) in self.groups.iter().enumerate().skip(self.lowest) {
            if free == 0 && at == self.lowest {
                self.lowest += 1;
            }
            let (first, length) = first_run(free, wanted);
            if length > best.map_or(0, |(.., longest)| longest) {
                best = Some((at, first, length));
                if length == wanted {
                    break;
                }
            }
        }
        let (at, first, length) = best?;
        self.groups[at] &= !mask(first, length);
        self.count -= length;
        Some(((at * SPAN_MAX) as u32 + first, length))
    }

    /// Gives back `length` slots from `index`, all of them from [`FreeSlots::take`].
    fn give_back(&mut self, index: u32, length: usize) {
        let (at, first) = (index as usize / SPAN_MAX, index % SPAN_MAX as u32);
        self.groups[at] |= mask(first, length);
        self.count += length;
        self.lowest = self.lowest.min(at);
    }
}

/// A group with all slots free.
const ALL_FREE: u8 = (1 << SPAN_MAX) - 1;

fn mask(first: u32, length: usize) -> u8 {
    (ALL_FREE >> (SPAN_MAX - length)) << first
}

/// Returns start and length of the first run of `wanted` free slots in a group, or else of the
/// first of the longest runs.
fn first_run(free: u8, wanted: usize) -> (u32, usize) {
    let mut best = (0, 0);
    let mut from = 0;
    while free >> from != 0 {
        let first = from + (free >> from).trailing_zeros();
        let length = (free >> first).trailing_ones();
        let counted = (length as usize).min(wanted);
        if counted > best.1 {
            best = (first, counted);
        }
        from = first + length;
    }
    best
}

// SAFETY: the memory behind `base` is only reached through `Buffer`s, and each slot is owned by at
// most one buffer at a time (it is either free or in exactly one `Buffer`).
unsafe impl Send for Shared {}
// SAFETY: as above; the bookkeeping is behind a mutex.
unsafe impl Sync for Shared {}

/// One buffer of a pool, filled from its start: [`Buffer::filled`] bytes are valid data.
pub struct Buffer {
    shared: Arc<Shared>,
    /// Index of its first slot.
    index: u32,
    /// Number of its slots.
    span: usize,
    filled: usize,
}

impl Pool {
    /// Makes a pool like [`Pool::try_new`], for sizes that are known to be small.
    ///
    /// # Panics
    /// If there is not enough memory.
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        match Self::try_new(slots, slot_bytes) {
            Some(pool) => pool,
            None => panic!("no memory for {slots} buffers of {slot_bytes} bytes"),
        }
    }

    /// Makes a pool of `slots` slots of `slot_bytes` each (rounded up to a multiple of
    /// [`ALIGN_BYTES`]); both are at least one. The memory is reserved at once but touched only
    /// when used; `None` if there is not enough.
    pub fn try_new(slots: usize, slot_bytes: usize) -> Option<Self> {
        let slots = slots.max(1).min(u32::MAX as usize);
        let slot_bytes = slot_bytes.max(1).checked_next_multiple_of(ALIGN_BYTES)?;
        let layout = Self::layout(slots, slot_bytes)?;
        // SAFETY: the layout has a non-zero size.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let bytes = slots * slot_bytes;
        let offset = allocation.align_offset(Self::alignment(bytes));
        debug_assert!(offset < Self::alignment(bytes));
        // SAFETY: the layout is larger than the slots need by more than this offset.
        let base = unsafe { allocation.add(offset) };
        let state = State { free: FreeSlots::all(slots), waiters: VecDeque::new(), next_ticket: 0 };
        let state = Mutex::new(state);
        Some(Self { shared: Arc::new(Shared { allocation, base, slot_bytes, slots, state }) })
    }

    /// Returns the layout; `None` if it exceeds the address space. We align the memory ourselves:
    /// what the allocator aligns it also zeroes by hand, which touches all of it.
    fn layout(slots: usize, slot_bytes: usize) -> Option<Layout> {
        let bytes = slots.checked_mul(slot_bytes)?;
        Layout::from_size_align(bytes.checked_add(Self::alignment(bytes))?, 1).ok()
    }

    /// Returns the alignment of the first slot of a pool of this size.
    fn alignment(pool_bytes: usize) -> usize {
        if pool_bytes < HUGE_BYTES { ALIGN_BYTES } else { HUGE_BYTES }
    }

    /// Returns the size of a slot in bytes: the least that a buffer holds.
    pub fn slot_bytes(&self) -> usize {
        self.shared.slot_bytes
    }

    /// Returns the number of slots, free or not.
    pub fn slots(&self) -> usize {
        self.shared.slots
    }

    /// Returns the number of free slots.
    pub fn free_slots(&self) -> usize {
        self.shared.lock().free.count
    }

    /// Returns the address and length of all slots, for registration with the kernel. Slot `i`
    /// begins `i * slot_bytes` into it.
    pub fn region(&self) -> (*mut u8, usize) {
        (self.shared.base.as_ptr(), self.shared.slots * self.shared.slot_bytes)
    }

    /// Takes an empty buffer of one slot, if one is free.
    pub fn try_take(&self) -> Option<Buffer> {
        self.try_take_for(1)
    }

    /// Takes an empty buffer, if a slot is free: with room for `bytes` if that many adjacent slots
    /// are free (at most [`SPAN_MAX`]), otherwise with as much as there is.
    pub fn try_take_for(&self, bytes: usize) -> Option<Buffer> {
        let (index, span) = self.shared.lock().free.take(bytes.div_ceil(self.shared.slot_bytes))?;
        Some(Buffer { shared: Arc::clone(&self.shared), index, span, filled: 0 })
    }

    /// Takes an empty buffer of one slot; waiters are served in order.
    pub fn take(&self) -> Take {
        Take { pool: self.clone(), ticket: None }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Pool({} of {} slots of {} bytes free)",
            self.free_slots(),
            self.slots(),
            self.slot_bytes()
        )
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, index: u32, span: usize) {
        let waker = {
            let mut state = self.lock();
            state.free.give_back(index, span);
            state.waiters.front().map(|(_, waker)| waker.clone())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Some(layout) = Pool::layout(self.slots, self.slot_bytes) else { return };
        // SAFETY: it came from `alloc_zeroed` with this very layout, and no buffer is left: each
        // holds an `Arc` of this value.
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
        if first && let Some((index, span)) = state.free.take(1) {
            if let Some(ticket) = this.ticket.take() {
                state.waiters.retain(|&(other, _)| other != ticket);
            }
            let next = if state.free.count == 0 {
                None
            } else {
                state.waiters.front().map(|(_, waker)| waker.clone())
            };
            drop(state);
            if let Some(waker) = next {
                waker.wake();
            }
            return Poll::Ready(Buffer { shared, index, span, filled: 0 });
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
            if state.free.count == 0 {
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
    /// Returns the group of its slots in the pool.
    pub fn group(&self) -> usize {
        self.index as usize / SPAN_MAX
    }

    /// Returns the number of its slots.
    pub fn slots(&self) -> usize {
        self.span
    }

    /// Returns how many bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.span * self.shared.slot_bytes
    }

    /// Gives back the slots without valid data, except the first.
    pub fn shrink(&mut self) {
        let needed = self.filled.div_ceil(self.shared.slot_bytes).max(1);
        let spare = self.span - needed;
        if spare > 0 {
            self.span = needed;
            self.shared.give_back(self.index + needed as u32, spare);
        }
    }

    /// Returns how many bytes from the start are valid data.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Returns the room after the valid data, to read into.
    pub fn spare(&mut self) -> &mut [u8] {
        let filled = self.filled;
        &mut self.whole()[filled..]
    }

    /// Declares `bytes` more bytes, just written into [`Buffer::spare`], as valid; never past the
    /// capacity.
    pub fn advance(&mut self, bytes: usize) {
        self.filled = (self.filled + bytes).min(self.capacity());
    }

    /// Keeps only the first `bytes` bytes of valid data.
    pub fn truncate(&mut self, bytes: usize) {
        self.filled = self.filled.min(bytes);
    }

    /// Appends as much of `data` as fits; returns how many bytes that was.
    pub fn push(&mut self, data: &[u8]) -> usize {
        let spare = self.spare();
        let bytes = spare.len().min(data.len());
        spare[..bytes].copy_from_slice(&data[..bytes]);
        self.filled += bytes;
        bytes
    }

    /// Returns the whole capacity, valid or not (all was zeroed once, so it is initialised).
    pub fn whole(&mut self) -> &mut [u8] {
        // SAFETY: this buffer alone owns its part of the allocation, which is zero-initialised
        // and lives as long as `shared`.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.capacity()) }
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: the index is below the pool's slots, so the offset lies in the allocation.
        unsafe { self.shared.base.as_ptr().add(self.index as usize * self.shared.slot_bytes) }
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
        self.shared.give_back(self.index, self.span);
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
    fn a_pool_of_some_size_begins_where_a_huge_page_can() {
        let of = |slots, slot_bytes| Pool::new(slots, slot_bytes).region().0 as usize;
        for _ in 0..4 {
            assert!(of(8, HUGE_BYTES / 8).is_multiple_of(HUGE_BYTES));
            assert!(of(9, HUGE_BYTES / 8).is_multiple_of(HUGE_BYTES));
            assert!(of(1, 1).is_multiple_of(ALIGN_BYTES));
        }
    }

    #[test]
    fn buffers_are_aligned_distinct_and_come_back() {
        let pool = Pool::new(3, 5000);
        assert_eq!(pool.slot_bytes(), 8192);
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
        assert_eq!(pool.free_slots(), 3);
    }

    #[test]
    fn a_buffer_may_span_neighbouring_slots_and_gives_back_what_it_does_not_need() {
        let pool = Pool::new(7, 4096);
        let mut wide = pool.try_take_for(3 * 4096).unwrap();
        assert_eq!((wide.slots(), wide.capacity()), (3, 12288));
        let widest = pool.try_take_for(1 << 30).unwrap();
        assert_eq!((widest.slots(), widest.group()), (3, 1), "the last group has three slots");
        let rest = pool.try_take_for(1 << 30).unwrap();
        assert_eq!((rest.slots(), rest.group()), (1, 0), "what is left");
        assert!(pool.try_take().is_none());
        wide.push(&[1; 5000]);
        wide.shrink();
        assert_eq!((wide.slots(), pool.free_slots()), (2, 1));
        let mut freed = pool.try_take().unwrap();
        freed.whole().fill(2);
        assert!(wide.iter().all(|&b| b == 1));
        wide.truncate(0);
        wide.shrink();
        assert_eq!(wide.slots(), 1, "a buffer is never nothing");
        drop((wide, widest, rest, freed));
        assert_eq!(pool.free_slots(), 7);
        assert_eq!(pool.try_take_for(4 * 4096).unwrap().slots(), 4);
    }

    #[test]
    fn slots_are_never_given_twice() {
        // Takes, shrinks and returns in a random order, against a plain list of who has what.
        let mut seed = 1u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % below
        };
        let pool = Pool::new(13, 4096);
        let mut held: Vec<Buffer> = Vec::new();
        for _ in 0..20_000 {
            match random(3) {
                0 if !held.is_empty() => drop(held.swap_remove(random(held.len()))),
                1 if !held.is_empty() => {
                    let at = random(held.len());
                    let bytes = random(held[at].capacity());
                    held[at].truncate(0);
                    held[at].advance(bytes);
                    held[at].shrink();
                }
                _ => held.extend(pool.try_take_for(1 + random(5 * 4096))),
            }
            let mut owners = [0; 13];
            for buffer in &held {
                let first = buffer.index as usize;
                assert!(first / SPAN_MAX == (first + buffer.slots() - 1) / SPAN_MAX);
                owners[first..first + buffer.slots()].iter_mut().for_each(|owner| *owner += 1);
            }
            assert!(owners.iter().all(|&owners| owners <= 1));
            let taken: usize = owners.iter().sum();
            assert_eq!(pool.free_slots() + taken, 13);
        }
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
