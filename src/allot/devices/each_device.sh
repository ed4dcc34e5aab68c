# Call a function for each device that this container was given, with what it is in variables and its number in $index.
each() {
    index=0
    for info in "$cards"/*/info; do
        [ -r "$info" ] || continue
        . "$info"
        "$1"
        index=$((index + 1))
    done
}
