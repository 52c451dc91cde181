//! Placement: data is resident where it fits, shards fit twice and are as large as can be, and free memory never
//! changes an order.

use batchloom::loader::{Placement, PlacementMode, PlacementRequest, Residency};
use batchloom::{Error, Kind};
use proptest::prelude::*;

use crate::errors::{is, refused};

/// The bytes of one sample.
const ROW: u64 = 8;

fn requests() -> impl Strategy<Value = PlacementRequest> {
    let bytes = || prop::option::of(0_u64..4000);
    let resident = prop_oneof![
        Just(Residency::Auto),
        Just(Residency::Always),
        Just(Residency::Never),
        (1_u64..4000).prop_map(Residency::Within),
    ];
    let shards = (prop::option::of(1_u64..50), prop::option::of(1_u64..20));
    (1_u64..300, bytes(), resident, shards, any::<bool>(), 0_u64..3).prop_map(
        |(samples, free, resident, (shard_size, unit), is_there, present)| PlacementRequest {
            device: Some("gpu:0".to_owned()),
            is_there,
            needed: samples * ROW,
            present: samples * ROW * present / 4,
            free,
            resident,
            samples,
            shard_size,
            unit,
        },
    )
}

fn decide(request: &PlacementRequest) -> Result<Placement, Error> {
    request.decide(|samples| samples * ROW)
}

/// The limit by its definition.
fn limit(request: &PlacementRequest) -> Option<u64> {
    let given = match request.resident {
        Residency::Within(bytes) => Some(bytes),
        _ => None,
    };
    let free = request.free.map(|free| match (given, request.resident) {
        (None, Residency::Auto) => free / 2 + request.present,
        _ => free + request.present,
    });
    given.into_iter().chain(free).min().filter(|_| !request.is_there)
}

proptest! {
    #[test]
    fn placement_keeps_data_there_where_it_fits(request in requests()) {
        let limit = limit(&request);
        prop_assert_eq!(request.limit().map(|limit| limit.bytes), limit);
        let fits = limit.is_none_or(|limit| request.needed <= limit);
        let placement = decide(&request);
        match (request.is_there, request.resident) {
            (true, _) => prop_assert_eq!(placement.unwrap().mode, PlacementMode::Resident),
            (false, Residency::Never) => prop_assert_eq!(placement.unwrap().mode, PlacementMode::Streamed),
            (false, _) if fits => prop_assert_eq!(placement.unwrap().mode, PlacementMode::Resident),
            (false, Residency::Always) => {
                let error = placement.unwrap_err();
                prop_assert!(matches!(error.kind(), Kind::Argument | Kind::Device), "{error}");
                prop_assert!(is(&error, error.kind(), &["resident is True, and the data takes"]), "{error}");
            }
            (false, _) => {
                prop_assert!(placement.is_err_and(|error| matches!(error.kind(), Kind::Argument | Kind::Device))
                    || decide(&request).unwrap().mode != PlacementMode::Resident);
            }
        }
    }

    #[test]
    fn placement_makes_the_largest_shards_that_fit_twice(request in requests(), limit in 1_u64..2400) {
        let (free, is_there, resident) = (None, false, Residency::Within(limit));
        let request = PlacementRequest { free, is_there, resident, ..request };
        let Ok(placement) = decide(&request) else { return Ok(()) };
        if placement.mode != PlacementMode::Sharded {
            return Ok(());
        }
        let (size, limit) = (placement.shard_size.unwrap(), placement.limit.unwrap());
        let takes = |samples: u64| samples.min(request.samples) * ROW;
        prop_assert!(2 * takes(size) <= limit);
        match (request.shard_size, request.unit) {
            (Some(given), _) => prop_assert_eq!(size, given),
            (None, unit) => {
                let unit = unit.unwrap();
                let most = (request.samples / unit).max(1);
                let slow = (1..=most).map(|times| times * unit).filter(|&size| takes(size) <= limit / 2).max();
                prop_assert_eq!(Some(size), slow);
            }
        }
    }

    /// Two runs with other free memory that both choose a shard size choose the same.
    #[test]
    fn placement_makes_no_order_of_free_memory(request in requests(), free in 0_u64..4000) {
        let other = PlacementRequest { free: Some(free), ..request.clone() };
        if let (Ok(first), Ok(second)) = (decide(&request), decide(&other))
            && first.mode == PlacementMode::Sharded && second.mode == PlacementMode::Sharded
        {
            prop_assert_eq!(first.shard_size, second.shard_size);
        }
    }

    #[test]
    fn placement_moves_rows_of_which_two_parts_fit(request in requests(), batch in 1_u64..100) {
        let limit = limit(&request);
        match request.rows_at_once(batch, batch * ROW, ROW) {
            Ok(None) => prop_assert!(limit.is_none_or(|limit| request.needed <= limit)),
            Ok(Some(0)) => {}
            Ok(Some(rows)) => {
                prop_assert!(rows >= batch);
                prop_assert!(2 * rows * ROW <= limit.unwrap());
            }
            Err(error) => {
                prop_assert!(limit.is_some_and(|limit| request.needed > limit));
                prop_assert!(matches!(error.kind(), Kind::Argument | Kind::Device));
            }
        }
    }
}

#[test]
fn placement_without_a_device_is_in_memory() {
    let request =
        PlacementRequest { needed: 8, samples: 1, shard_size: Some(3), ..PlacementRequest::default() };
    let placement = decide(&request).unwrap();
    assert_eq!((placement.mode, placement.limit, placement.shard_size), (PlacementMode::Host, None, Some(3)));
}

#[test]
fn placement_says_which_memory_is_missing() {
    let request = PlacementRequest {
        device: Some("gpu:0".to_owned()),
        needed: 800,
        free: Some(399),
        present: 1,
        resident: Residency::Always,
        samples: 100,
        ..PlacementRequest::default()
    };
    let words = ["resident is True", "800 bytes", "399 are free on gpu:0", "1 of it are there already"];
    refused(decide(&request), Kind::Device, &words);
}

#[test]
fn placement_refuses_a_limit_beyond_free_memory_that_would_make_an_order() {
    let request = PlacementRequest {
        device: Some("gpu:0".to_owned()),
        needed: 800,
        free: Some(400),
        resident: Residency::Within(799),
        samples: 100,
        unit: Some(10),
        ..PlacementRequest::default()
    };
    refused(decide(&request), Kind::Device, &["resident is 799", "400 bytes are free"]);
    let small = PlacementRequest { resident: Residency::Within(159), ..request.clone() };
    refused(
        decide(&small),
        Kind::Argument,
        &["a shard of 10 samples", "80 bytes", "159, the bytes that resident allows"],
    );
    let fits = PlacementRequest { resident: Residency::Within(400), ..request };
    assert_eq!(decide(&fits).unwrap().shard_size, Some(20));
}
