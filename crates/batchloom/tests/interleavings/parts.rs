//! The parts that block, in every order there is: a signal, the memory of a consumer, workers and their calls.

use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;

use super::super::buffers::{BufferOptions, Buffers};
use super::super::signal::{SOON, Signal};
use super::{builder, delivered, exhaust, exhaust_ends, planned};

/// A value, and the signal that it may have changed.
#[derive(Default)]
struct Announced {
    value: Mutex<u32>,
    signal: Signal,
}

impl Announced {
    /// Waits until the value is at least `least`.
    fn wait(&self, least: u32, awake: Duration) {
        let mut value = self.value.lock().unwrap();
        while *value < least {
            value = self.signal.wait(&self.value, value, awake, Duration::MAX);
        }
    }

    fn add(&self) {
        let mut value = self.value.lock().unwrap();
        *value += 1;
        self.signal.raise();
    }
}

/// A thread that began to wait misses no signal, whether it sleeps or stays awake for a while.
#[test]
fn no_signal_is_missed() {
    exhaust([Duration::ZERO, SOON], 1_000_000, |awake| {
        let announced = Arc::new(Announced::default());
        let waits = {
            let announced = Arc::clone(&announced);
            thread::spawn(move || announced.wait(1, awake))
        };
        announced.add();
        waits.join().unwrap();
    });
}

/// A signal wakes all that sleep.
#[test]
fn a_signal_is_for_all() {
    exhaust([Duration::ZERO], 1_000_000, |awake| {
        let announced = Arc::new(Announced::default());
        let waits = {
            let announced = Arc::clone(&announced);
            thread::spawn(move || announced.wait(1, awake))
        };
        let adds = {
            let announced = Arc::clone(&announced);
            thread::spawn(move || announced.add())
        };
        announced.wait(1, awake);
        waits.join().unwrap();
        adds.join().unwrap();
    });
}

fn pool() -> Arc<Buffers> {
    Buffers::new(BufferOptions { keep: 2, poison: false, memory: None })
}

/// A thread that waits for the memory of a consumer goes on as soon as the consumer lets go of a block, asks for another
/// one, or stops.
#[test]
fn memory_is_waited_for_until_the_consumer_goes_on() {
    #[derive(Clone, Copy)]
    enum Way {
        LetsGo,
        Asks,
        Stops,
    }
    exhaust([Way::LetsGo, Way::Asks, Way::Stops], 1_000_000, |way| {
        let (buffers, over) = (pool(), Arc::new(AtomicBool::new(false)));
        let held = [buffers.deliver(), buffers.deliver()];
        let waits = {
            let (buffers, over) = (Arc::clone(&buffers), Arc::clone(&over));
            thread::spawn(move || buffers.wait(1 << 20, || over.load(Ordering::SeqCst)))
        };
        match way {
            Way::LetsGo => {
                let [first, _second] = held;
                drop(first);
                waits.join().unwrap();
            }
            Way::Asks => {
                buffers.keep();
                waits.join().unwrap();
            }
            Way::Stops => {
                over.store(true, Ordering::SeqCst);
                buffers.keep();
                waits.join().unwrap();
            }
        }
    });
}

/// A buffer that comes back from another thread is free again, once.
#[test]
fn a_buffer_comes_back_once() {
    exhaust([()], 1_000_000, |()| {
        let buffers = pool();
        let given = [buffers.take(100).unwrap(), buffers.take(100).unwrap()];
        let addresses = given.each_ref().map(|buffer| buffer.as_ref().as_ptr() as usize);
        let threads = given.map(|buffer| {
            let buffers = Arc::clone(&buffers);
            thread::spawn(move || buffers.give(buffer))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let taken = [(); 2].map(|()| buffers.take(100).unwrap());
        let mut reused = taken.each_ref().map(|buffer| buffer.as_ref().as_ptr() as usize);
        reused.sort_unstable();
        let mut addresses = addresses;
        addresses.sort_unstable();
        assert_eq!(reused, addresses);
    });
}

/// The smallest epoch that calls a worker, in as many orders of its end as there is time for.
#[test]
fn the_smallest_epoch_ends() {
    exhaust_ends(3_000, || {
        let loader = builder(1, 4).num_threads(1).build().unwrap();
        assert_eq!(delivered(loader.iter()), planned(&loader, 0));
    });
}
