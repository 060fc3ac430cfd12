"""The toy world is the same every time: else no table made with it could be made again."""

from paravt import toy


def test_videos_are_equal_to_the_byte(tmp_path):
    """x264 has paths that depend on where its memory lies, so that one write in fifty differed: hence so many."""
    written, elsewhere = set(), []
    for number in range(60):
        elsewhere.append(bytearray(1000 * number + 1))
        toy.write_video(str(tmp_path / "clip.mp4"), "red", 60)
        written.add((tmp_path / "clip.mp4").read_bytes())
    assert len(written) == 1


def test_rows_depend_on_the_seed_alone(tmp_path):
    first, again, other = (
        [(row["truth"], row["prompt"], row["answer"]) for row in toy.make_rows(str(tmp_path), 6, seed)]
        for seed in (0, 0, 1)
    )
    assert first == again != other
