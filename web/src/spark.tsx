// A line without axes: how a figure went over the last minute.

export function Spark({ values, label }: { values: number[]; label: string }) {
  const width = 96, height = 24, most = Math.max(1e-9, ...values);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((v, i) => `${(i * step).toFixed(1)},${(height - 2 - (v / most) * (height - 4)).toFixed(1)}`);
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label} preserveAspectRatio="none">
      {values.length > 1 && (
        <>
          <polygon points={`0,${height} ${points.join(" ")} ${width},${height}`} />
          <polyline points={points.join(" ")} />
        </>
      )}
    </svg>
  );
}
