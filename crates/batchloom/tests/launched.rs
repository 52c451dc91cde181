//! The rank and the world size that launchers say: each way that there is, and words that say nothing.

use batchloom::ranks::launched_by;

/// The rank and the world size by these variables; `None` if there are none, and an error as its message.
fn launched(variables: &[(&str, &str)]) -> Result<Option<(u32, u32)>, String> {
    let get =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    launched_by(get).map_err(|error| error.to_string())
}

#[test]
fn launchers_say_ranks_in_their_ways() {
    let node = [("WORLD_SIZE", "8"), ("NODE_RANK", "1"), ("LOCAL_RANK", "2"), ("LOCAL_WORLD_SIZE", "4")];
    for (variables, expected) in [
        (&[][..], None),
        (&[("RANK", ""), ("WORLD_SIZE", "")][..], None),
        (&[("SLURM_PROCID", "3"), ("SLURM_NTASKS", "4")][..], None),
        (&[("RANK", "3"), ("WORLD_SIZE", "4")][..], Some((3, 4))),
        (
            &[("RANK", " 3 "), ("WORLD_SIZE", "4"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4")][..],
            Some((3, 4)),
        ),
        (&[("WORLD_SIZE", "4"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4")][..], Some((1, 4))),
        (&[("WORLD_SIZE", "4"), ("LOCAL_RANK", "1")][..], Some((1, 4))),
        (&node[..], Some((6, 8))),
    ] {
        assert_eq!(launched(variables), Ok(expected), "{variables:?}");
    }
}

#[test]
fn ranks_that_are_none_are_refused_with_what_was_found() {
    for variables in [
        &[("RANK", "3")][..],
        &[("WORLD_SIZE", "4")][..],
        &[("RANK", "4"), ("WORLD_SIZE", "4")][..],
        &[("RANK", "-1"), ("WORLD_SIZE", "4")][..],
        &[("RANK", "x"), ("WORLD_SIZE", "4")][..],
        &[("RANK", "0"), ("WORLD_SIZE", "0")][..],
        &[("RANK", "0"), ("WORLD_SIZE", "99999999")][..],
        &[("WORLD_SIZE", "8"), ("NODE_RANK", "1"), ("LOCAL_RANK", "2")][..],
    ] {
        let message = launched(variables).unwrap_err();
        for (name, value) in variables {
            assert!(message.contains(&format!("{name}={value:?}")), "{message}");
        }
    }
}
